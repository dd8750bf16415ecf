// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One file, several programs: without a DBG_CASE it must compile, with one it must not.
#include <string>

#include "dbg/tags.h"

void take(dbg::TagList tags);
void call();

void call() {
  int number = 3;
  const char* text = "text";
  [[maybe_unused]] int* pointer = &number;
  enum class Phase { prefill };
  static_cast<void>(Phase::prefill);
  take({{"number", number}, {"text", text}, {"string", std::string("s")}, {"flag", true}, {"none", nullptr}});
#if defined(DBG_CASE_CHAR)
  take({{"letter", 'x'}});  // a letter or a number? The caller has to say.
#elif defined(DBG_CASE_WIDE_CHAR)
  take({{"letter", L'x'}});
#elif defined(DBG_CASE_POINTER)
  take({{"pointer", pointer}});  // would be a bool
#elif defined(DBG_CASE_ENUM)
  take({{"phase", Phase::prefill}});
#elif defined(DBG_CASE_OWNED_POINTER)
  dbg::Tags().set("pointer", pointer);
#elif defined(DBG_CASE_WIDE_TEXT)
  take({{"text", L"wide"}});  // would be a bool
#endif
}
