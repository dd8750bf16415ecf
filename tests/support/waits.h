// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Places to hang in, for tests of what happens to those who hang.
#pragma once

namespace dbg::test {

/// Sleeps until the process ends, on a stack that shows this function's name.
void wait_forever_here();

}  // namespace dbg::test
