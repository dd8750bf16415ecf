// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// WordPiece: text to the token ids of an uncased BERT.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace minilm {

/// Turns text into token ids by a vocabulary of whole words and word ends.
///
/// Threads: safe to call from any thread.
class WordPiece {
 public:
  /// Reads `vocab.txt`: one token a line, its id the line's number from 0.
  /// Throws: std::runtime_error when the file can't be read or lacks one of [PAD] [UNK] [CLS] [SEP] [MASK].
  static WordPiece from_vocab_file(const std::string& path);

  /// The ids of `text` between [CLS] and [SEP], cut at the end to at most `max_length` with these two.
  ///
  /// A special token written out in the text ("[SEP]") is that token, as it is for transformers.
  std::vector<std::int64_t> encode(std::string_view text, std::size_t max_length) const;

  std::int64_t pad_id() const { return pad_id_; }
  std::size_t vocab_size() const { return ids_.size(); }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  std::int64_t id_of_special(std::string_view token, const std::string& path) const;
  void encode_plain(std::string_view text, std::vector<std::int64_t>& out) const;
  void encode_word(std::u32string_view word, std::vector<std::int64_t>& out) const;

  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> ids_;
  std::vector<std::pair<std::string, std::int64_t>> specials_;
  std::int64_t pad_id_ = 0;
  std::int64_t unknown_id_ = 0;
  std::int64_t cls_id_ = 0;
  std::int64_t sep_id_ = 0;
};

}  // namespace minilm
