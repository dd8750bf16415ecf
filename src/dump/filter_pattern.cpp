// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writes a pattern for RE2, and runs it.
#include "dump/filter_pattern.h"

#include <re2/re2.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "dump/filter_pattern_tree.h"

namespace dbg::filter {
namespace {

constexpr std::size_t kMostLiterals = 16;
constexpr int kMostMemory = 8 << 20;  // bytes; beyond it RE2 goes on, slower

// `is_last`: nothing of the pattern comes behind this piece.
void write(const Piece& piece, bool is_last, std::string& out) {
  switch (piece.type) {
    case Piece::Type::fixed:
    case Piece::Type::assertion:
      out += piece.text;
      return;
    case Piece::Type::end_of_text:
      // Python's `$` also holds before a last newline. Where nothing follows, taking that newline in is the same.
      if (!is_last) {
        throw PatternError(piece.at, "a '$' with more behind it is not available: put it last, or use \\Z");
      }
      out += "(?:\\n?\\z)";
      return;
    case Piece::Type::sequence:
      for (const Piece& part : piece.parts) write(part, is_last && &part == &piece.parts.back(), out);
      return;
    case Piece::Type::choice:
      out += "(?:";
      for (const Piece& part : piece.parts) {
        if (&part != &piece.parts.front()) out += '|';
        write(part, is_last, out);
      }
      out += ')';
      return;
    case Piece::Type::repeat:
      out += "(?:";
      write(piece.parts.front(), is_last && piece.at_most_once, out);
      out += ')';
      out += piece.text;
      return;
  }
}

// Appends the plain texts that `piece` is a choice of; returns false when it is something else.
bool collect_literals(const Piece& piece, std::vector<std::string>& literals) {
  if (piece.type == Piece::Type::choice) {
    return piece.parts.size() <= kMostLiterals &&
           std::all_of(piece.parts.begin(), piece.parts.end(),
                       [&](const Piece& part) { return collect_literals(part, literals); });
  }
  if (piece.type != Piece::Type::sequence) return false;
  const bool is_group = piece.parts.size() == 1 && (piece.parts.front().type == Piece::Type::choice ||
                                                    piece.parts.front().type == Piece::Type::sequence);
  if (is_group) return collect_literals(piece.parts.front(), literals);
  std::string literal;
  for (const Piece& part : piece.parts) {
    if (part.type != Piece::Type::fixed || part.literal.empty()) return false;
    literal += part.literal;
  }
  literals.push_back(std::move(literal));
  return literals.size() <= kMostLiterals;
}

}  // namespace

TranslatedPattern translate_pattern(std::string_view python_pattern) {
  Piece piece = read_pattern(python_pattern);
  TranslatedPattern result;
  write(piece, /*is_last=*/true, result.text);
  if (piece.type == Piece::Type::sequence && !piece.parts.empty() && piece.parts.front().text == "\\A") {
    result.literals_at_start = true;
    piece.parts.erase(piece.parts.begin());
  }
  if (!collect_literals(piece, result.literals)) {
    result.literals.clear();
    result.literals_at_start = false;
  }
  return result;
}

Pattern::Pattern(std::string_view python_pattern) {
  TranslatedPattern translated = translate_pattern(python_pattern);
  literals_ = std::move(translated.literals);
  literals_at_start_ = translated.literals_at_start;
  if (!literals_.empty()) return;
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMostMemory);
  automaton_ = std::make_unique<RE2>(translated.text, options);
  if (!automaton_->ok()) {
    throw PatternError(0,
                       "the pattern is too large or of no use to RE2 (" + automaton_->error() + "): make it simpler");
  }
}

Pattern::~Pattern() = default;

bool Pattern::run(std::string_view text, bool from_start) const {
  if (!automaton_) {
    const bool only_at_start = from_start || literals_at_start_;
    for (const std::string& literal : literals_) {
      if (literal.empty()) return true;
      if (text.size() < literal.size()) continue;
      if (only_at_start ? std::memcmp(text.data(), literal.data(), literal.size()) == 0
                        : ::memmem(text.data(), text.size(), literal.data(), literal.size()) != nullptr) {
        return true;
      }
    }
    return false;
  }
  const re2::StringPiece piece(text.data(), text.size());
  return automaton_->Match(piece, 0, text.size(), from_start ? RE2::ANCHOR_START : RE2::UNANCHORED, nullptr, 0);
}

bool Pattern::search(std::string_view text) const {
  return run(text, /*from_start=*/false);
}

bool Pattern::match(std::string_view text) const {
  return run(text, /*from_start=*/true);
}

}  // namespace dbg::filter
