# gallop::gallop and gallop::cli for find_package(gallop), with what gallop_add_rule() compiles.
include(CMakePackageConfigHelpers)

install(TARGETS gallop gallop_checks gallop_gpt gallop_cli EXPORT gallopTargets)
install(TARGETS gallop_main)
if(TARGET gallop_mpi)
  install(TARGETS gallop_mpi LIBRARY DESTINATION ${GALLOP_MODULE_FOLDER})
endif()
install(DIRECTORY include/gallop ${CMAKE_CURRENT_BINARY_DIR}/include/gallop
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(part core cpu cuda optimizer)
  install(DIRECTORY src/${part} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gallop
          FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")
endforeach()
install(DIRECTORY rules DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gallop)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gallop)
install(EXPORT gallopTargets NAMESPACE gallop:: DESTINATION ${package_dir})
configure_package_config_file(cmake/gallopConfig.cmake.in gallopConfig.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(gallopConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gallopConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/gallopConfigVersion.cmake cmake/GallopRules.cmake
        DESTINATION ${package_dir})

set(GALLOP_PC_CUDA "")
if(GALLOP_WITH_CUDA AND NOT GALLOP_EMULATED_CUDA)
  set(GALLOP_PC_CUDA "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt ")
endif()
configure_file(cmake/gallop.pc.in gallop.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gallop.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
