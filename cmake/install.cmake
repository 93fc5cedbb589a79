# What `make install` puts where: the library, shared and static, headers, the command, and what pkg-config and CMake
# read. Paths in them are relative, so the folder can be moved.
include(CMakePackageConfigHelpers)

# The static library is one object whose internal names are local. Of an archive of many, a linker takes only those that
# somebody asks for by name, and nobody asks for the one that wires the library (src/tenon.c).
set(archive ${CMAKE_BINARY_DIR}/libtenon.a)
set(whole ${CMAKE_BINARY_DIR}/generated/tenon.o)
add_custom_command(OUTPUT ${archive}
  COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${whole} $<TARGET_OBJECTS:tenon_objects> $<TARGET_OBJECTS:typed_objects>
    ${cpu_objects}
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${whole}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
  COMMAND ${CMAKE_AR} rcs ${archive} ${whole}
  DEPENDS tenon_objects typed_objects $<TARGET_OBJECTS:tenon_objects> $<TARGET_OBJECTS:typed_objects> ${cpu_objects}
  COMMAND_EXPAND_LISTS VERBATIM COMMENT "Linking C static library libtenon.a")
if(TENON_SANITIZE OR CMAKE_CROSSCOMPILING OR NOT CMAKE_OBJCOPY)
  add_custom_target(tenon_archive DEPENDS ${archive})
else()
  add_custom_target(tenon_archive ALL DEPENDS ${archive})
endif()

install(TARGETS tenon tenon_cli
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/ ${CMAKE_BINARY_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(system_libraries -lpthread -ldl -lm)
list(JOIN system_libraries " " TENON_SYSTEM_LIBRARIES)
set(packages ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH TENON_PC_PREFIX /p/${packages} /p)
configure_file(${CMAKE_SOURCE_DIR}/cmake/tenon.pc.in ${CMAKE_BINARY_DIR}/generated/tenon.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/tenon.pc DESTINATION ${packages})

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tenon)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/tenon-config.cmake.in
  ${CMAKE_BINARY_DIR}/generated/tenon-config.cmake INSTALL_DESTINATION ${package}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/tenon-config-version.cmake
  COMPATIBILITY SameMinorVersion) # before 1.0 a minor version may break things
install(FILES ${CMAKE_BINARY_DIR}/generated/tenon-config.cmake ${CMAKE_BINARY_DIR}/generated/tenon-config-version.cmake
  DESTINATION ${package})
