// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Unicode text for the tokenizer: decoding, the classes of code points it asks about, and its clean-up of text.
#pragma once

#include <string>
#include <string_view>

namespace minilm {

/// Decodes UTF-8. Bytes that are not UTF-8 become U+FFFD, one each, which `normalize` then drops.
std::u32string decode_utf8(std::string_view bytes);

/// Appends `point` to `out` as UTF-8.
void append_utf8(char32_t point, std::string& out);

/// Whether the tokenizer splits at `point` and drops it.
bool is_space(char32_t point);

/// Whether `point` is a word of its own: any Unicode punctuation and every ASCII sign that is no letter or digit.
bool is_punctuation(char32_t point);

/// Brings text into the form an uncased BERT was trained on.
///
/// Control and format characters go, every kind of space becomes U+0020, spaces are put around each CJK ideograph,
/// accents go (canonical decomposition without the nonspacing marks), letters become lower-case.
/// Source: transformers' BertTokenizer (BertNormalizer of tokenizers); tests/interop/minilm_tokens_test.py holds the
/// two together. Code points that Unicode got later than the tables of the one or the other may differ.
std::u32string normalize(std::u32string_view text);

}  // namespace minilm
