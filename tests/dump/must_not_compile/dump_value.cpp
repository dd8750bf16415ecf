// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One file, several programs: without a DBG_CASE it must compile, with one it must not.
#include <string>

#include "dbg/dumper.h"

void call(dbg::Dumper& dumper, at::Tensor& tensor);

void call(dbg::Dumper& dumper, at::Tensor& tensor) {
  [[maybe_unused]] float numbers[3] = {1, 2, 3};
  const char letters[] = "text";
  dumper.dump("tensor", tensor);
  dumper.dump("text", letters);
  dumper.dump("null", nullptr);
  dumper.dump("callable", [&] { return tensor; });
#if defined(DBG_CASE_TENSOR_POINTER)
  dumper.dump("x", &tensor);
#elif defined(DBG_CASE_DATA_POINTER)
  dumper.dump("x", static_cast<const float*>(numbers));
#elif defined(DBG_CASE_ARRAY)
  dumper.dump("x", numbers);
#elif defined(DBG_CASE_RETURNED_POINTER)
  dumper.dump("x", [&] { return &tensor; });
#endif
}
