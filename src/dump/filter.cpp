// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The filter as the Dumper sees it: compile, ask, count what had no answer.
#include "dump/filter.h"

#include <string>

#include "base/log.h"
#include "dump/filter_error.h"
#include "dump/filter_parser.h"
#include "dump/filter_program.h"

namespace dbg {
namespace {

constexpr std::size_t kShownSource = 200;  // code points

class TagsLookup final : public TagLookup {
 public:
  explicit TagsLookup(const Tags& tags) noexcept : tags_(tags) {}

  TagView find(std::string_view key) const noexcept override {
    const TagValue* const value = tags_.find(key);
    return value != nullptr ? value->view() : TagView();
  }

 private:
  const Tags& tags_;
};

// Counts; the first one is worth a line.
class Counter final : public filter::MismatchObserver {
 public:
  explicit Counter(const filter::Program& program) noexcept : program_(program) {}

  void on_mismatch(const filter::Node& node, std::string_view tried, const filter::Value& a,
                   const filter::Value& b) override {
    if (program_.mismatches.hit() != 1) return;
    const std::string values = &a == &b ? shown(a) : shown(a) + " and " + shown(b);
    base::log(LogLevel::warning, "Dumper",
              "filter `{}`: at column {} {} has no answer for {}; taken as false (counted, said once)",
              filter::clipped(program_.source, kShownSource), filter::column_of(program_.source, node.at), tried,
              values);
  }

 private:
  const filter::Program& program_;
};

}  // namespace

Filter Filter::parse(std::string_view text) {
  Filter result;
  if (text.find_first_not_of(" \t\n\v\f\r") != std::string_view::npos) result.program_ = filter::parse_program(text);
  return result;
}

bool Filter::matches(const TagLookup& tags) const noexcept {
  if (!program_) return true;
  try {
    filter::Scratch scratch;
    Counter counter(*program_);
    return filter::truth(filter::evaluate(*program_, program_->root, tags, scratch, counter));
  } catch (...) {  // out of memory, inside RE2 or in the words of the warning
    program_->mismatches.hit();
    return false;
  }
}

bool Filter::matches(const Tags& tags) const noexcept {
  return matches(TagsLookup(tags));
}

std::uint64_t Filter::mismatches() const noexcept {
  return program_ ? program_->mismatches.count() : 0;
}

}  // namespace dbg
