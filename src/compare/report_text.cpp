// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Prints a report.
#include "compare/report_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "base/formatted.h"
#include "compare/divergence.h"
#include "compare/report_label.h"

namespace dbg::compare {
namespace {

constexpr std::size_t kMostLines = 10;  // of unpaired and unreadable records, unless all are shown
constexpr std::size_t kWidestName = 60;

// Columns that a text takes on a terminal, about: one a character.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string padded(std::string text, std::size_t width) {
  const std::size_t own = width_of(text);
  if (own < width) text.append(width - own, ' ');
  return text;
}

class Printer {
 public:
  Printer(const CompareReport& report, const TextOptions& options) : report_(report), options_(options) {}

  std::string run() {
    print_folders();
    print_headline();
    print_steps();
    print_table();
    print_unpaired();
    print_unreadable();
    out_ += "\n" + summary_line(report_) + "\n" + advice();
    return std::move(out_);
  }

 private:
  std::string coloured(std::string text, std::string_view code) const {
    return options_.is_coloured ? formatted("\x1b[{}m{}\x1b[0m", code, text) : text;
  }

  static std::string_view colour_of(Verdict verdict) {
    switch (verdict) {
      case Verdict::same_bits:
        return "32";
      case Verdict::passed:
        return "36";
      case Verdict::failed:
        return "31";
      case Verdict::skipped:
        break;
    }
    return "33";
  }

  void line(const std::string& text) { out_ += text + "\n"; }

  void print_folders() {
    line(formatted("baseline: {} records in {}", report_.baseline_records, safe_text(report_.baseline)));
    line(formatted("target:   {} records in {}", report_.target_records, safe_text(report_.target)));
    if (!report_.noise.empty()) line(formatted("noise:    {}", safe_text(report_.noise)));
    for (const std::string& note : report_.notes) line("note: " + safe_text(note));
    line("");
  }

  void print_headline() {
    if (report_.pairs.empty()) {
      line(coloured("nothing to compare: no record of the one folder has a partner in the other", "1;31"));
      return;
    }
    const Divergence& found = report_.divergence;
    if (!found.first_bits && !found.first_beyond) {
      const bool is_whole = report_.count(Verdict::same_bits) == report_.pairs.size();
      line(coloured(is_whole ? formatted("no difference: all {} pairs have the same bits", report_.pairs.size())
                             : "no difference in what could be compared",
                    is_whole ? "1;32" : "1;33"));
      return;
    }
    print_landmark("first other bits", found.first_bits, "last with the same bits", "none; all have the same bits");
    print_landmark("first beyond tolerance", found.first_beyond, "last that passed",
                   report_.noise.empty() ? "none; what differs is within tolerance"
                                         : "none; what differs is within the noise of the second trusted run");
    print_landmark("first jump", found.first_jump, "the one before it", no_jump());
  }

  std::string no_jump() const {
    double largest = 0;
    for (const PairReport& pair : report_.pairs) {
      if (pair.difference.compared) largest = std::max(largest, pair.error);
    }
    return formatted("none; the error grows evenly, to at most {}, as rounding does", number_label(largest));
  }

  void print_landmark(std::string_view what, const std::optional<Landmark>& landmark, std::string_view good,
                      const std::string& otherwise) {
    if (!landmark) {
      line(formatted("{}: {}", what, otherwise));
      return;
    }
    const PairReport& pair = report_.pairs[landmark->pair];
    line(formatted("{}: {}", what, coloured(safe_text(pair_label(pair)), "1")));
    // What is said of a pair is said once.
    if (told_.insert(landmark->pair).second) {
      line("    " + safe_text(difference_label(pair)));
      if (!pair.note.empty()) line("    " + safe_text(pair.note));
    }
    const bool is_jump = what == "first jump";
    if (is_jump && std::isinf(pair.error)) {
      line("    error inf: what is NaN or infinite on one side only makes it so; every error before it was finite");
    } else if (is_jump && std::isinf(pair.growth)) {  // integers do not round
      line(formatted("    error {}, and none before it", number_label(pair.error)));
    } else if (is_jump) {
      line(formatted("    error {}: {:.3g} times the largest before it, or one rounding{} where that is larger",
                     number_label(pair.error), pair.growth, pair.noise_error ? ", or the noise," : ""));
    } else if (!pair.reason.empty() && pair.verdict == Verdict::failed && pair.difference.compared) {
      line("    " + safe_text(pair.reason));
    }
    line(landmark->last_good ? formatted("    {}: {}", good, safe_text(pair_label(report_.pairs[*landmark->last_good])))
                             : "    nothing before it");
  }

  void print_steps() {
    if (report_.steps.size() < 2) return;
    line("\nstep     pairs  same bits  passed  failed  skipped  first other bits / beyond / jump");
    for (const StepReport& step : report_.steps) {
      const auto name = [this](const std::optional<Landmark>& landmark) {
        return landmark ? safe_text(name_label(report_.pairs[landmark->pair])) : std::string("-");
      };
      line(formatted("{:<6} {:>7} {:>10} {:>7} {:>7} {:>8}  {} / {} / {}", step.step, step.pairs, step.same_bits,
                     step.passed, step.failed, step.skipped, name(step.divergence.first_bits),
                     name(step.divergence.first_beyond), name(step.divergence.first_jump)));
    }
  }

  // The pairs around each landmark first, then those that failed or were skipped, then others that differ.
  std::vector<std::size_t> rows() const {
    std::set<std::size_t> chosen;
    const auto add = [&](std::size_t at) {
      if (options_.shows_all || chosen.size() < options_.most_rows) chosen.insert(at);
    };
    const Divergence& found = report_.divergence;
    for (const auto* landmark : {&found.first_jump, &found.first_beyond, &found.first_bits}) {
      if (!*landmark) continue;
      const std::size_t center = (*landmark)->pair;
      for (std::size_t at = center < 3 ? 0 : center - 3; at < std::min(report_.pairs.size(), center + 4); ++at) add(at);
    }
    for (const Verdict verdict : {Verdict::skipped, Verdict::failed, Verdict::passed, Verdict::same_bits}) {
      if (verdict == Verdict::same_bits && !options_.shows_all) break;
      for (std::size_t at = 0; at < report_.pairs.size(); ++at) {
        if (report_.pairs[at].verdict == verdict) add(at);
      }
    }
    return {chosen.begin(), chosen.end()};
  }

  void print_table() {
    const std::vector<std::size_t> chosen = rows();
    if (chosen.empty()) return;
    std::size_t name_width = 4;
    for (const std::size_t at : chosen) name_width = std::max(name_width, width_of(shown_name(at)));
    line(formatted("\n    {:>6}  {}  {:<9}  {:>9}  {:>9}  {:>9}  {:>8}  why", "#", padded("pair", name_width),
                   "verdict", "rel_diff", "max_abs", "outside", "growth"));
    std::size_t expected = chosen.front();
    for (const std::size_t at : chosen) {
      if (at != expected) line("       ...");
      expected = at + 1;
      const PairReport& pair = report_.pairs[at];
      const bool measured = pair.difference.compared;
      line(formatted("  {} {:>6}  {}  {}  {:>9}  {:>9}  {:>9}  {:>8}  {}", mark_of(at), at + 1,
                     padded(shown_name(at), name_width),
                     coloured(formatted("{:<9}", to_text(pair.verdict)), colour_of(pair.verdict)),
                     measured ? number_label(pair.difference.rel_diff) : "-",
                     measured ? number_label(pair.difference.max_abs) : "-",
                     measured ? formatted("{:.4f}", pair.outside_fraction) : "-",
                     measured && pair.growth > 0 ? formatted("{:.3g}", pair.growth) : "-", safe_text(pair.reason)));
    }
    if (chosen.size() < report_.pairs.size() && !options_.shows_all) {
      line(formatted("    {} of {} pairs; --all shows every one", chosen.size(), report_.pairs.size()));
    }
  }

  std::string shown_name(std::size_t at) const {
    std::string name = safe_text(pair_label(report_.pairs[at]));
    if (width_of(name) <= kWidestName || options_.shows_all) return name;
    std::size_t end = kWidestName - 3;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;
    return name.substr(0, end) + "...";
  }

  std::string mark_of(std::size_t at) const {
    const auto is_at = [at](const std::optional<Landmark>& landmark) { return landmark && landmark->pair == at; };
    const Divergence& found = report_.divergence;
    return is_at(found.first_jump) || is_at(found.first_beyond) || is_at(found.first_bits) ? ">" : " ";
  }

  void print_unpaired() {
    for (const char* side : {"baseline", "target"}) {
      std::vector<const UnpairedReport*> here;
      for (const UnpairedReport& one : report_.unpaired) {
        if (one.side == side) here.push_back(&one);
      }
      if (here.empty()) continue;
      line(formatted("\nonly in the {}: {} records", side, here.size()));
      for (std::size_t i = 0; i < here.size() && (options_.shows_all || i < kMostLines); ++i) {
        const UnpairedReport& one = *here[i];
        line(formatted("    step={} rank={} {}{}: {}{}", one.step, ranks_label(one.ranks), safe_text(one.name),
                       one.tags.empty() ? "" : " " + safe_text(one.tags), safe_text(one.reason),
                       one.nearest_name.empty() || one.nearest_name == one.name
                           ? ""
                           : formatted("; the nearest is '{}'", safe_text(one.nearest_name))));
      }
      if (!options_.shows_all && here.size() > kMostLines) line("    ...; --all shows every one");
    }
  }

  void print_unreadable() {
    if (report_.unreadable.empty()) return;
    line(coloured(formatted("\nunreadable: {} records", report_.unreadable.size()), "1;31"));
    for (std::size_t i = 0; i < report_.unreadable.size() && (options_.shows_all || i < kMostLines); ++i) {
      line("    " + safe_text(report_.unreadable[i].cause));
    }
    if (!options_.shows_all && report_.unreadable.size() > kMostLines) line("    ...; --all shows every one");
  }

  std::string advice() const {
    if (report_.pairs.empty()) {
      return "names, steps and tags must be equal: join two engines' names by --map 'target-regex => "
             "baseline-replacement',\nset a tag aside by --ignore-tag, shift steps by --step-offset\n";
    }
    if (report_.exit_code() == 2)
      return "what was skipped or unreadable has not been compared: its reason stands above; mend that, or leave the "
             "records out by --where\n";
    if (report_.unpaired_fails && !report_.unpaired.empty() && report_.count(Verdict::failed) == 0) {
      return "records without a partner count as a difference: join names by --map, or pass --allow-unpaired\n";
    }
    if (report_.count(Verdict::failed) > 0) {
      return formatted("{}another tolerance is set by --rule 'regex: rel <= 1e-3'\n",
                       options_.has_page ? "" : "where in the tensors: --html FILE; ");
    }
    return "";
  }

  const CompareReport& report_;
  const TextOptions& options_;
  std::set<std::size_t> told_;
  std::string out_;
};

}  // namespace

std::string report_text(const CompareReport& report, const TextOptions& options) {
  return Printer(report, options).run();
}

}  // namespace dbg::compare
