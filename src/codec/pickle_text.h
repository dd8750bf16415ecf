// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Text as pickles have it: UTF-8 in which lone surrogates may stand.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dbg::codec {

/// How a pickled text came out.
enum class TextState {
  fine,
  /// It holds a lone surrogate that stands for no byte.
  surrogate,
  /// It is not UTF-8, with or without surrogates.
  malformed,
};

/// Decodes pickled text into `out`. U+DC80..U+DCFF become the bytes 0x80..0xff that Python's `surrogateescape` hid
/// there.
TextState decode_text(std::string_view pickled, std::string& out);

/// The bytes of a `bytes` object that protocol 2 writes as text of the characters U+0000..U+00FF; nullopt where there
/// is another character.
std::optional<std::string> decode_latin1(std::string_view pickled);

}  // namespace dbg::codec
