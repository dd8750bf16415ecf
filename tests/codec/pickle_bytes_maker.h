// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writes pickles opcode by opcode, wrong ones too: what no writer would let one write.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace dbg::test::pickled {

inline std::string little_endian(std::uint64_t value, int size) {
  std::string out;
  for (int i = 0; i < size; ++i) out.push_back(i < 8 ? static_cast<char>(value >> (8 * i) & 0xff) : '\0');
  return out;
}

/// A whole pickle of protocol 2 around what leaves one value on the stack.
inline std::string whole(std::string_view body) {
  return "\x80\x02" + std::string(body) + ".";
}

inline std::string text(std::string_view value) {
  return "X" + little_endian(value.size(), 4) + std::string(value);
}
inline std::string bytes(std::string_view value) {
  return "B" + little_endian(value.size(), 4) + std::string(value);
}
inline std::string integer(std::int64_t value) {
  return "\x8a\x08" + little_endian(static_cast<std::uint64_t>(value), 8);
}
inline std::string real(double value) {
  return "G" + little_endian(__builtin_bswap64(std::bit_cast<std::uint64_t>(value)), 8);
}
inline std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline std::string tuple(std::string_view entries) {
  return "(" + std::string(entries) + "t";
}
inline std::string list(std::string_view entries) {
  return "](" + std::string(entries) + "e";
}
inline std::string dict(std::string_view entries) {
  return "}(" + std::string(entries) + "u";
}
inline std::string call(std::string_view function, std::string_view arguments) {
  return std::string(function) + tuple(arguments) + "R";
}

inline std::string storage(std::string_view type, std::string_view key, std::int64_t elements) {
  return tuple(text("storage") + global("torch", type) + text(key) + text("cpu") + integer(elements)) + "Q";
}

/// A call of _rebuild_tensor_v2 with sizes and strides given as opcodes.
inline std::string tensor_v2(std::string_view storage, std::int64_t offset, std::string_view sizes,
                             std::string_view strides, std::string_view more = "") {
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              std::string(storage) + integer(offset) + tuple(sizes) + tuple(strides) + "\x89" +
                  call(global("collections", "OrderedDict"), "") + std::string(more));
}

inline std::string tensor_v3(std::string_view storage, std::int64_t offset, std::string_view sizes,
                             std::string_view strides, std::string_view dtype) {
  return call(global("torch._utils", "_rebuild_tensor_v3"),
              std::string(storage) + integer(offset) + tuple(sizes) + tuple(strides) + "\x89" +
                  call(global("collections", "OrderedDict"), "") + global("torch", dtype));
}

/// The older torch.save stream of one root with one storage, "0".
inline std::string stream(std::string_view root, std::int64_t elements, std::string_view data) {
  return whole(std::string("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 12)) + whole("M\xe9\x03") + whole("}") +
         whole(root) + whole(list(text("0"))) + little_endian(static_cast<std::uint64_t>(elements), 8) +
         std::string(data);
}

}  // namespace dbg::test::pickled
