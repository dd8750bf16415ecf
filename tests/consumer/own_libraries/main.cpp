// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Calls the program's own libraries and dbg's, which use theirs inside: fmt for a tensor's text, json for the header of
// a safetensors file.
#include <ATen/ATen.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "dbg/error.h"
#include "dbg/safetensors.h"
#include "dbg/tensor_info.h"

std::string own_text(double value);

namespace {

// One tensor, [1.5, 2.5], behind a header that ends as given.
void write_safetensors(const char* path, const std::string& end) {
  const std::string header =
      R"({"__metadata__":{"by":"hand"},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})" + end;
  const auto size = static_cast<std::uint64_t>(header.size());
  const float values[] = {1.5F, 2.5F};
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << header;
  file.write(reinterpret_cast<const char*>(values), sizeof values);
}

}  // namespace

int main() {
  write_safetensors("whole.safetensors", "}");
  write_safetensors("broken.safetensors", "]");
  const std::string before = own_text(1.5);
  const std::string described = dbg::to_text(dbg::describe(at::ones({2, 3})));
  const auto file = dbg::SafetensorsFile::open("whole.safetensors");
  const bool is_read = at::equal(file.tensor("x"), at::tensor({1.5F, 2.5F})) && file.metadata().at("by") == "hand";
  std::string said;
  try {
    dbg::SafetensorsFile::open("broken.safetensors");
  } catch (const dbg::IoError& error) {
    said = error.what();
  }
  const std::string after = own_text(1.5);
  const bool holds = before == after && before == R"(1.500 3 {"a":[1,2.5,"x"],"b":{"c":null}})" && !described.empty() &&
                     is_read && said.find("broken.safetensors") != std::string::npos;
  std::printf("%s\n%s\n%s\n", before.c_str(), described.c_str(), said.c_str());
  return holds ? 0 : 1;
}
