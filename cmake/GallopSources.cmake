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
  set(out ${CMAKE_CURRENT_BINARY_DIR}/generated/sources.gen.cpp)
  set(lists ${root} ${rules} ${root}/src ${headers})
  string(REPLACE ";" "|" lists "${lists}")
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} "-DLISTS=${lists}" -P ${root}/cmake/EmbedSources.cmake
    DEPENDS ${rules} ${headers} ${root}/cmake/EmbedSources.cmake VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
