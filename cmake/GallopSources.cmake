# The headers that kernels are compiled from at run time travel in the library, so that it needs no
# source tree: the rules, what they may use, and the loops around them.
function(gallop_embed_sources target)
  set(root ${PROJECT_SOURCE_DIR})
  file(GLOB rules CONFIGURE_DEPENDS ${root}/rules/*.h)
  file(GLOB headers CONFIGURE_DEPENDS ${root}/src/core/*.h ${root}/src/cuda/*.cuh
       ${root}/src/cuda/*_data.h)
  foreach(header kernel isa_name decoded_block norm_kernels rule_loops rule_kernels fitted_loops)
    list(APPEND headers ${root}/src/cpu/${header}.h)
  endforeach()
  list(APPEND headers ${root}/src/optimizer/rule_data.h ${root}/src/optimizer/describe_rule.h)
  if(GALLOP_EMULATED_CUDA)
    foreach(header device cuda_runtime_api kernels)
      list(APPEND headers ${root}/src/cuda_emulator/${header}.h)
    endforeach()
  endif()
  gallop_embed(${target} jit/sources.h gallop::jit ${root} ${rules} ${root}/src ${headers})
endfunction()

# The report's page, and the library that draws its charts.
function(gallop_embed_page target)
  set(folder ${PROJECT_SOURCE_DIR}/src/lab/page)
  find_file(GALLOP_CHART_JS chart.min.js
            PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist NO_DEFAULT_PATH
            NO_CMAKE_FIND_ROOT_PATH)
  set(library)
  if(GALLOP_CHART_JS)
    get_filename_component(where ${GALLOP_CHART_JS} DIRECTORY)
    set(library ${where} ${GALLOP_CHART_JS})
  else()
    message(STATUS "no Chart.js (Debian: libjs-chart.js): reports have tables and no charts")
  endif()
  gallop_embed(${target} lab/page/sources.h gallop::lab::page ${folder} ${folder}/page.html
               ${folder}/page.css ${folder}/page.js ${folder}/charts.js ${library})
endfunction()

# gallop_embed(target header namespace ROOT file... ROOT file...): texts that the header's sources()
# gives back.
function(gallop_embed target header namespace)
  string(MAKE_C_IDENTIFIER ${namespace} name)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/generated/${name}.gen.cpp)
  set(script ${PROJECT_SOURCE_DIR}/cmake/EmbedSources.cmake)
  set(files)
  foreach(path IN LISTS ARGN)
    if(NOT IS_DIRECTORY ${path})
      list(APPEND files ${path})
    endif()
  endforeach()
  list(JOIN ARGN "|" lists)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DHEADER=${header} -DNAMESPACE=${namespace}
            "-DLISTS=${lists}" -P ${script}
    DEPENDS ${files} ${script} VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
