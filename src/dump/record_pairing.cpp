// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Sorts both sides' records into bundles, and joins bundles of equal keys.
#include "dump/record_pairing.h"

#include <fmt/ranges.h>
#include <re2/re2.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dump/record_name.h"

namespace dbg {
namespace {

using TagTexts = std::vector<std::optional<std::string>>;

// What makes two records equal: name and step as the baseline calls them, and the texts of the tags that count.
struct Key {
  std::string name;
  std::int64_t step = 0;
  TagTexts tags;

  friend bool operator<(const Key& a, const Key& b) {
    return std::tie(a.name, a.step, a.tags) < std::tie(b.name, b.step, b.tags);
  }
};

// Who of a bundle's members a record is.
using Member = std::pair<int, TagTexts>;

std::int64_t integer_of(const Tags& tags, std::string_view key) {
  const std::string_view text = tags.find(key)->view().text();
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kBlanks) - first + 1));
}

TagTexts texts_of(const Tags& tags, const std::vector<std::string>& names) {
  TagTexts texts;
  for (const std::string& name : names) {
    const TagValue* value = tags.find(name);
    texts.push_back(value != nullptr ? std::optional(python_text(value->view())) : std::nullopt);
  }
  return texts;
}

std::set<std::string> tag_names(const std::vector<RecordDescriptor>& records) {
  std::set<std::string> names;
  for (const RecordDescriptor& record : records) {
    for (const auto& [name, value] : record.tags) names.insert(name);
  }
  return names;
}

// Insertions, deletions and substitutions that turn `a` into `b`; some number above `limit` once it is above.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > limit) return limit + 1;
  std::vector<std::size_t> row(a.size() + 1);
  for (std::size_t i = 0; i <= a.size(); ++i) row[i] = i;
  for (std::size_t j = 1; j <= b.size(); ++j) {
    std::size_t diagonal = row[0];
    row[0] = j;
    std::size_t smallest = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[i];
      row[i] = std::min({replaced, row[i] + 1, row[i - 1] + 1});
      smallest = std::min(smallest, row[i]);
    }
    if (smallest > limit) return limit + 1;
  }
  return row[a.size()];
}

// One side's records, in bundles.
class Side {
 public:
  Side(const char* side_name, const std::vector<RecordDescriptor>& records) : name_(side_name), records_(records) {}

  void sort_into_bundles(const std::vector<std::string>& counting_tags, const PairingOptions& options, bool is_target) {
    std::vector<std::size_t> order(records_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [this](std::size_t a, std::size_t b) { return records_[a].dump_index < records_[b].dump_index; });
    std::map<std::pair<Key, Member>, std::size_t> seen;
    for (const std::size_t at : order) {
      const RecordDescriptor& record = records_[at];
      Key key{record.name, record.step, texts_of(record.tags, counting_tags)};
      if (is_target) {
        key.step += options.step_offset;
        for (const NameRule& rule : options.name_rules) {
          if (rule.apply(key.name)) break;
        }
      }
      own_names_.emplace(key.name, record.name);
      const std::size_t number = seen[{key, {record.rank, texts_of(record.tags, options.bundle_tags)}}]++;
      auto& bundles = bundles_[std::move(key)];
      if (bundles.size() <= number) bundles.resize(number + 1);
      bundles[number].push_back(at);
    }
    for (auto& [key, bundles] : bundles_) {
      for (RecordBundle& bundle : bundles) {
        std::stable_sort(bundle.begin(), bundle.end(),
                         [this](std::size_t a, std::size_t b) { return records_[a].rank < records_[b].rank; });
      }
    }
  }

  const std::map<Key, std::vector<RecordBundle>>& bundles() const { return bundles_; }

  // Whether the first bundle was dumped before the second.
  bool is_before(const RecordBundle& a, const RecordBundle& b) const {
    const auto moment = [this](const RecordBundle& bundle) {
      const RecordDescriptor& first = records_[bundle.front()];
      return std::tuple(first.step, first.dump_index, first.rank, bundle.front());
    };
    return moment(a) < moment(b);
  }

  // Why this side has no partner for the other's bundle `number` of `key`.
  std::string why_missing(const Key& key, std::size_t number, const std::vector<std::string>& counting_tags) const {
    if (own_names_.count(key.name) == 0) return formatted("the {} has no record of this name", name_);
    const auto first_in_step = bundles_.lower_bound({key.name, key.step, {}});
    if (first_in_step == bundles_.end() || first_in_step->first.name != key.name ||
        first_in_step->first.step != key.step) {
      return formatted("the {} has this name, but not in step {} (as the baseline counts)", name_, key.step);
    }
    const auto equal = bundles_.find(key);
    if (equal != bundles_.end()) {
      return formatted("the {} has {} of these in step {}, and this is number {}", name_, equal->second.size(),
                       key.step, number + 1);
    }
    std::vector<std::string> tags;
    for (std::size_t i = 0; i < counting_tags.size(); ++i) {
      if (key.tags[i]) tags.push_back(counting_tags[i] + "=" + *key.tags[i]);
    }
    return formatted("the {} has this name in step {}, but not with {}", name_, key.step,
                     tags.empty() ? std::string("no tags at all") : formatted("{}", fmt::join(tags, ", ")));
  }

  // This side's own name that is nearest to `name` (as the baseline would call it).
  const std::string& nearest_name(const std::string& name) {
    const auto known = nearest_.find(name);
    if (known != nearest_.end()) return known->second;
    std::string nearest;
    std::size_t best = std::numeric_limits<std::size_t>::max() - 1;
    for (const auto& [joined, own] : own_names_) {
      const std::size_t distance = edit_distance(name, joined, best);
      if (distance >= best) continue;
      best = distance;
      nearest = own;
    }
    return nearest_.emplace(name, nearest).first->second;
  }

 private:
  const char* name_;
  const std::vector<RecordDescriptor>& records_;
  std::map<Key, std::vector<RecordBundle>> bundles_;
  std::map<std::string, std::string> own_names_;  // the baseline's name -> this side's
  std::map<std::string, std::string> nearest_;    // answers given
};

}  // namespace

NameRule NameRule::parse(std::string_view text) {
  constexpr std::string_view kArrow = "=>";
  const std::size_t at = text.find(kArrow);
  if (at == std::string_view::npos) {
    throw ConfigError(formatted("name rule '{}': expected 'target-regex => baseline-replacement'", text));
  }
  const std::string pattern = trimmed(text.substr(0, at));
  if (pattern.empty()) throw ConfigError(formatted("name rule '{}': nothing stands in front of '=>'", text));
  NameRule rule;
  const re2::RE2::Options quiet(re2::RE2::Quiet);
  const auto compiled = std::make_shared<const re2::RE2>(pattern, quiet);
  if (!compiled->ok()) {
    throw ConfigError(formatted("name rule '{}': '{}' is no regex: {}", text, pattern, compiled->error()));
  }
  rule.replacement_ = trimmed(text.substr(at + kArrow.size()));
  std::string reason;
  if (!compiled->CheckRewriteString(rule.replacement_, &reason)) {
    throw ConfigError(formatted("name rule '{}': {}", text, reason));
  }
  rule.pattern_ = compiled;
  return rule;
}

bool NameRule::apply(std::string& name) const {
  return pattern_ != nullptr && re2::RE2::Replace(&name, *pattern_, replacement_);
}

RecordDescriptor describe_record(const Tags& pairs) {
  RecordDescriptor descriptor;
  descriptor.step = integer_of(pairs, "step");
  descriptor.rank = static_cast<int>(integer_of(pairs, "rank"));
  descriptor.dump_index = integer_of(pairs, "dump_index");
  for (const auto& [key, value] : pairs) {
    if (key == "name") {
      descriptor.name = std::string(value.view().text());
    } else if (key != "step" && key != "rank" && key != "dump_index") {
      descriptor.tags.set(key, value);
    }
  }
  return descriptor;
}

RecordDescriptor describe_record_file(std::string_view path) {
  const std::optional<Tags> pairs = parse_record_name(path.substr(path.rfind('/') + 1));
  if (!pairs) throw ConfigError(formatted("'{}' has no record's name", path));
  return describe_record(*pairs);
}

Pairing pair_records(const std::vector<RecordDescriptor>& baseline, const std::vector<RecordDescriptor>& target,
                     const PairingOptions& options) {
  std::vector<std::string> counting_tags;
  const std::set<std::string> in_target = tag_names(target);
  for (const std::string& name : tag_names(baseline)) {
    const auto is_in = [&name](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (in_target.count(name) > 0 && !is_in(options.ignored_tags) && !is_in(options.bundle_tags)) {
      counting_tags.push_back(name);
    }
  }
  Side of_baseline("baseline", baseline);
  Side of_target("target", target);
  of_baseline.sort_into_bundles(counting_tags, options, /*is_target=*/false);
  of_target.sort_into_bundles(counting_tags, options, /*is_target=*/true);

  Pairing pairing;
  const auto leave_unpaired = [&](const Side& own, Side& other, std::vector<UnpairedBundle>& to) {
    for (const auto& [key, bundles] : own.bundles()) {
      const auto partners = other.bundles().find(key);
      const std::size_t paired = partners == other.bundles().end() ? 0 : partners->second.size();
      for (std::size_t number = paired; number < bundles.size(); ++number) {
        to.push_back({bundles[number], other.why_missing(key, number, counting_tags), other.nearest_name(key.name)});
      }
    }
    std::sort(to.begin(), to.end(),
              [&own](const UnpairedBundle& a, const UnpairedBundle& b) { return own.is_before(a.records, b.records); });
  };
  for (const auto& [key, bundles] : of_baseline.bundles()) {
    const auto partners = of_target.bundles().find(key);
    if (partners == of_target.bundles().end()) continue;
    for (std::size_t i = 0; i < std::min(bundles.size(), partners->second.size()); ++i) {
      pairing.pairs.push_back({bundles[i], partners->second[i]});
    }
  }
  std::sort(pairing.pairs.begin(), pairing.pairs.end(), [&of_baseline](const RecordPair& a, const RecordPair& b) {
    return of_baseline.is_before(a.baseline, b.baseline);
  });
  leave_unpaired(of_baseline, of_target, pairing.baseline_only);
  leave_unpaired(of_target, of_baseline, pairing.target_only);
  return pairing;
}

}  // namespace dbg
