// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// WordPiece: splits cleaned text into words and words into the longest pieces the vocabulary has.
#include "wordpiece.h"

#include <fstream>
#include <stdexcept>

#include "text.h"

namespace minilm {
namespace {

// Longer words are one unknown token, as in the model's training.
constexpr std::size_t kMaxWordPoints = 100;
constexpr std::string_view kContinuation = "##";

}  // namespace

WordPiece WordPiece::from_vocab_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read the vocabulary " + path + "; --model names the model's folder");
  WordPiece out;
  std::string line;
  std::int64_t next_id = 0;
  while (std::getline(file, line)) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    out.ids_[line] = next_id++;
  }
  out.pad_id_ = out.id_of_special("[PAD]", path);
  out.unknown_id_ = out.id_of_special("[UNK]", path);
  out.cls_id_ = out.id_of_special("[CLS]", path);
  out.sep_id_ = out.id_of_special("[SEP]", path);
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    out.specials_.emplace_back(token, out.id_of_special(token, path));
  }
  return out;
}

std::int64_t WordPiece::id_of_special(std::string_view token, const std::string& path) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) {
    throw std::runtime_error("the vocabulary " + path + " has " + std::to_string(ids_.size()) +
                             " tokens but no line '" + std::string(token) + "'; it is not that of a BERT model");
  }
  return found->second;
}

std::vector<std::int64_t> WordPiece::encode(std::string_view text, std::size_t max_length) const {
  if (max_length < 2) throw std::runtime_error("max_length must leave room for [CLS] and [SEP], so be at least 2");
  std::vector<std::int64_t> out{cls_id_};
  std::size_t plain_begin = 0;
  std::size_t at = 0;
  // Specials are looked for in the text as it came: case and accents count.
  while ((at = text.find('[', at)) != std::string_view::npos) {
    bool matched = false;
    for (const auto& [token, id] : specials_) {
      if (text.substr(at, token.size()) != token) continue;
      encode_plain(text.substr(plain_begin, at - plain_begin), out);
      out.push_back(id);
      at += token.size();
      plain_begin = at;
      matched = true;
      break;
    }
    if (!matched) ++at;
  }
  encode_plain(text.substr(plain_begin), out);
  if (out.size() > max_length - 1) out.resize(max_length - 1);
  out.push_back(sep_id_);
  return out;
}

void WordPiece::encode_plain(std::string_view text, std::vector<std::int64_t>& out) const {
  const std::u32string points = normalize(decode_utf8(text));
  const std::u32string_view all = points;
  std::size_t begin = 0;
  const auto end_word = [&](std::size_t end) {
    if (end > begin) encode_word(all.substr(begin, end - begin), out);
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (is_space(all[i])) {
      end_word(i);
      begin = i + 1;
    } else if (is_punctuation(all[i])) {
      end_word(i);
      encode_word(all.substr(i, 1), out);
      begin = i + 1;
    }
  }
  end_word(all.size());
}

void WordPiece::encode_word(std::u32string_view word, std::vector<std::int64_t>& out) const {
  if (word.size() > kMaxWordPoints) {
    out.push_back(unknown_id_);
    return;
  }
  std::string bytes;
  std::vector<std::size_t> ends;  // ends[i]: where point i ends in bytes
  for (const char32_t point : word) {
    append_utf8(point, bytes);
    ends.push_back(bytes.size());
  }
  std::vector<std::int64_t> pieces;
  std::string candidate;
  std::size_t first = 0;
  while (first < ends.size()) {
    const std::size_t begin = first == 0 ? 0 : ends[first - 1];
    bool found = false;
    for (std::size_t last = ends.size(); last > first; --last) {
      candidate.assign(first == 0 ? std::string_view() : kContinuation);
      candidate.append(bytes, begin, ends[last - 1] - begin);
      if (const auto piece = ids_.find(candidate); piece != ids_.end()) {
        pieces.push_back(piece->second);
        first = last;
        found = true;
        break;
      }
    }
    // One piece that the vocabulary lacks makes the whole word unknown.
    if (!found) {
      out.push_back(unknown_id_);
      return;
    }
  }
  out.insert(out.end(), pieces.begin(), pieces.end());
}

}  // namespace minilm
