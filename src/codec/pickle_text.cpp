// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Decoding the text of pickles.
#include "codec/pickle_text.h"

#include <algorithm>
#include <cstdint>

namespace dbg::codec {
namespace {

constexpr std::uint32_t no_character = 0xffffffff;

/// Takes one character off the front of `text`; no_character where there is none. Surrogates are taken like any other.
std::uint32_t take_character(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  std::size_t size = 1;
  std::uint32_t value = first;
  std::uint32_t least = 0;
  if (first >= 0xf0 && first < 0xf8) {
    size = 4;
    value = first & 0x07;
    least = 0x10000;
  } else if (first >= 0xe0 && first < 0xf0) {
    size = 3;
    value = first & 0x0f;
    least = 0x800;
  } else if (first >= 0xc0 && first < 0xe0) {
    size = 2;
    value = first & 0x1f;
    least = 0x80;
  } else if (first >= 0x80) {
    return no_character;
  }
  if (text.size() < size) return no_character;
  for (std::size_t i = 1; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0) != 0x80) return no_character;
    value = value << 6 | (byte & 0x3f);
  }
  // The same character in more bytes than it needs, or past the last one.
  if (value < least || value > 0x10ffff) return no_character;
  text.remove_prefix(size);
  return value;
}

}  // namespace

TextState decode_text(std::string_view pickled, std::string& out) {
  out.clear();
  out.reserve(pickled.size());
  std::string_view rest = pickled;
  TextState state = TextState::fine;
  while (!rest.empty()) {
    const std::string_view before = rest;
    const std::uint32_t character = take_character(rest);
    if (character == no_character) return TextState::malformed;
    if (character >= 0xdc80 && character <= 0xdcff) {
      out.push_back(static_cast<char>(character - 0xdc00));
    } else if (character >= 0xd800 && character <= 0xdfff) {
      state = TextState::surrogate;
    } else {
      out.append(before.substr(0, before.size() - rest.size()));
    }
  }
  return state;
}

std::optional<std::string> decode_latin1(std::string_view pickled) {
  std::string out;
  out.reserve(pickled.size());
  while (!pickled.empty()) {
    const std::uint32_t character = take_character(pickled);
    if (character > 0xff) return std::nullopt;
    out.push_back(static_cast<char>(character));
  }
  return out;
}

}  // namespace dbg::codec
