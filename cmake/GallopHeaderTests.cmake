# Every header of include/gallop must compile alone, with nothing but the public include path: what
# a user may include first. Makes the object library gallop_header_tests, built with everything.
function(gallop_header_tests)
  file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include
       ${PROJECT_SOURCE_DIR}/include/gallop/*.h)
  set(sources "")
  foreach(header IN LISTS headers ITEMS gallop/version.h)
    string(MAKE_C_IDENTIFIER ${header} id)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/headers.gen/${id}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n")
    list(APPEND sources ${source})
  endforeach()
  add_library(gallop_header_tests OBJECT ${sources})
  target_include_directories(gallop_header_tests PRIVATE
    $<TARGET_PROPERTY:gallop,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_features(gallop_header_tests PRIVATE cxx_std_20)
  target_compile_options(gallop_header_tests PRIVATE -Werror)
endfunction()
