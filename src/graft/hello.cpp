// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writes and reads the words of the ranks.
#include "graft/hello.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/formatted.h"
#include "dbg/error.h"
#include "graft/frame.h"

namespace dbg::graft {
namespace {

constexpr const char* kPlain = "plain";

struct Word {
  std::string version;
  Sides sides;
  std::int64_t max_bytes = 0;
};

std::string to_text(const Word& word) {
  return formatted("{} {} {} {}", word.version, word.sides.baseline, word.sides.target, word.max_bytes);
}

// nullopt: none of this version's.
std::optional<Word> word_in(const std::string& text) {
  Word word;
  std::istringstream in(text);
  in >> word.version >> word.sides.baseline >> word.sides.target >> word.max_bytes;
  if (in.fail() || (word.version != kPlain && word.version != std::to_string(kFrameVersion))) return std::nullopt;
  return word;
}

Word own_word(const GraftConfig& config, const Sides& sides) {
  return {config.plain_wire ? kPlain : std::to_string(kFrameVersion), sides, config.max_bytes};
}

}  // namespace

std::string name_of_rank(const Sides& sides, int rank) {
  return rank < sides.baseline ? formatted("baseline rank {}", rank)
                               : formatted("target rank {}", rank - sides.baseline);
}

c10::intrusive_ptr<distributed::TrackedStore> hello_store(const c10::intrusive_ptr<c10d::Store>& store,
                                                          const std::string& group_name) {
  return c10::make_intrusive<distributed::TrackedStore>(store, formatted("dbg_graft/{}", group_name));
}

void say_hello(distributed::TrackedStore& hello, const GraftConfig& config, const Sides& sides, int rank) {
  const std::string own = std::to_string(rank);
  if (hello.peek(own)) {
    throw ConfigError(
        formatted("{} has met at {}:{} as '{}' before, and would now meet what that left: give both sides another "
                  "grafter_master_port, or another grafter_group_name",
                  name_of_rank(sides, rank), config.master_address, config.master_port, config.group_name));
  }
  hello.put(own, to_text(own_word(config, sides)));
}

Hellos read_hellos(distributed::TrackedStore& hello, const GraftConfig& config, const Sides& sides) {
  Hellos all{!config.plain_wire, config.max_bytes, {}};
  for (int rank = 0; rank < sides.size(); ++rank) {
    const auto said = hello.peek(std::to_string(rank));
    const auto word = said ? word_in(*said) : std::nullopt;
    if (!said) all.silent.push_back(rank);
    // Of another version: the Python wire is what both speak.
    all.are_all_dbg = all.are_all_dbg && word && word->version != kPlain;
    if (!word) continue;
    if (word->sides.baseline != sides.baseline || word->sides.target != sides.target) {
      throw ConfigError(
          formatted("{} was told {} baseline and {} target ranks, and this rank {} and {}: set the same "
                    "grafter_baseline_world_size and grafter_target_world_size on both sides",
                    name_of_rank(sides, rank), word->sides.baseline, word->sides.target, sides.baseline, sides.target));
    }
    if (word->max_bytes > 0) all.max_bytes = std::min(all.max_bytes, word->max_bytes);
  }
  return all;
}

}  // namespace dbg::graft
