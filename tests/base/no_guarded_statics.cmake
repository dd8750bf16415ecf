# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
# Fails when the library holds a local static with a guard: a child that is forked while another thread is inside it waits
# for that thread for ever, at its first record. Uses NM and LIBRARY.
execute_process(
  COMMAND "${NM}" "${LIBRARY}"
  OUTPUT_VARIABLE symbols
  ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "_ZGVZNK?3dbg[^\n]*" guards "${symbols}")
string(REGEX MATCH "_ZN[^\n]*3dbg" any "${symbols}")
if(NOT any)
  message(FATAL_ERROR "${NM} finds no symbols of dbg in ${LIBRARY}")
endif()
if(guards)
  list(JOIN guards "\n  " text)
  message(FATAL_ERROR "use base::made_once instead of these local statics:\n  ${text}")
endif()
