// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Calls the program's own libraries and dbg's, which use theirs inside.
#include <ATen/ATen.h>

#include <cstdio>
#include <string>

#include "dbg/error.h"
#include "dbg/safetensors.h"
#include "dbg/tensor_info.h"

std::string own_text(double value);

int main() {
  const std::string before = own_text(1.5);
  const std::string described = dbg::to_text(dbg::describe(at::ones({2, 3})));
  std::string said;
  try {
    dbg::SafetensorsFile::open("no such file");
  } catch (const dbg::Error& error) {
    said = error.what();
  }
  const std::string after = own_text(1.5);
  const bool holds = before == after && before == R"(1.500 3 {"a":[1,2.5,"x"],"b":{"c":null}})" && !described.empty() &&
                     said.find("no such file") != std::string::npos;
  std::printf("%s\n%s\n%s\n", before.c_str(), described.c_str(), said.c_str());
  return holds ? 0 : 1;
}
