# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Configures SOURCE into BINARY and demands that it fails with a message that matches MESSAGE.
file(REMOVE_RECURSE "${BINARY}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${BINARY}" -G "${GENERATOR}" ${OPTIONS}
  RESULT_VARIABLE result
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output)
# CMake breaks a message into lines as it likes.
string(REGEX REPLACE "[ \n]+" " " text "${output}")
if(result EQUAL 0)
  message(FATAL_ERROR "was configured, and should have been refused:\n${output}")
elseif(NOT text MATCHES "${MESSAGE}")
  message(FATAL_ERROR "was refused without '${MESSAGE}':\n${output}")
endif()
