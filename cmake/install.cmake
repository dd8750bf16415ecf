# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Installs the library, the public headers and the package that find_package(dbg) reads.
include(CMakePackageConfigHelpers)

set(_dbg_package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/dbg")
install(TARGETS dbg EXPORT dbgTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/include/dbg"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING
  PATTERN "*.h")
install(
  EXPORT dbgTargets
  NAMESPACE dbg::
  DESTINATION "${_dbg_package_folder}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/dbgConfig.cmake.in" "${PROJECT_BINARY_DIR}/dbgConfig.cmake"
                              INSTALL_DESTINATION "${_dbg_package_folder}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/dbgConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/dbgConfig.cmake" "${PROJECT_BINARY_DIR}/dbgConfigVersion.cmake"
        "${PROJECT_SOURCE_DIR}/cmake/FindLibtorch.cmake" "${PROJECT_SOURCE_DIR}/cmake/nccl_target.cmake"
        "${PROJECT_SOURCE_DIR}/cmake/re2.cmake"
  DESTINATION "${_dbg_package_folder}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
