// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A place to hang in.
#include "support/waits.h"

#include <unistd.h>

namespace dbg::test {

[[gnu::noinline]] void wait_forever_here() {
  for (;;) ::pause();
}

}  // namespace dbg::test
