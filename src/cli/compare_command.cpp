// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// `dbg compare`.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "compare/report_html.h"
#include "compare/report_json.h"
#include "compare/report_text.h"
#include "dbg/compare.h"
#include "dbg/error.h"

namespace dbg::cli {
namespace {

constexpr std::size_t kPictures = 60;

struct CompareArguments {
  CompareOptions options;
  std::string html;
  std::string json;
  std::string colour = "auto";
  bool allows_unpaired = false;
  bool shows_all = false;
  bool is_quiet = false;
};

CompareReport compare_with_progress(CompareOptions options) {
  ProgressLine line(STDERR_FILENO);
  options.on_progress = [&line](std::size_t done, std::size_t all) { line.show(done, all); };
  return compare_folders(options);
}

int run_compare(CompareArguments& arguments) {
  arguments.options.unpaired_fails = !arguments.allows_unpaired;
  if (!arguments.html.empty()) arguments.options.max_pictures = kPictures;
  // The threads are ours, one a pair; each of them with a team of torch's own would be too many.
  at::set_num_threads(1);
  const bool shows_progress = !arguments.is_quiet && is_terminal(STDERR_FILENO);
  const CompareReport report =
      shows_progress ? compare_with_progress(arguments.options) : compare_folders(arguments.options);
  // Printed first: a disk too full for a file does not take the answer along.
  const bool prints = !arguments.is_quiet && arguments.json != "-" && arguments.html != "-";
  if (prints) {
    compare::TextOptions text;
    text.is_coloured = wants_colour(arguments.colour);
    text.shows_all = arguments.shows_all;
    text.has_page = !arguments.html.empty();
    print(compare::report_text(report, text));
  }
  if (!arguments.json.empty()) write_file(arguments.json, compare::report_json(report));
  if (!arguments.html.empty()) {
    write_file(arguments.html, compare::report_html(report));
    if (prints) print("the page: " + arguments.html + "\n");
  }
  return report.exit_code();
}

}  // namespace

Command add_compare(CLI::App& app) {
  const auto arguments = std::make_shared<CompareArguments>();
  CompareOptions& options = arguments->options;
  const CLI::Validator can_be_written([](std::string& path) { return output_problem(path); }, "");
  const CLI::Validator is_no_folder([](std::string& path) { return input_problem(path); }, "");
  CLI::App* command =
      app.add_subcommand("compare", "Say where two runs part: the first tensor that differs, and by how much");
  command->add_option("BASELINE", options.baseline, "Folder of records of the run that is right")->required();
  command->add_option("TARGET", options.target, "Folder of records of the run in question")->required();
  command->add_option("--html", arguments->html, "Write a page: chart, table, pictures of what failed")
      ->type_name("FILE")
      ->check(can_be_written);
  command->add_option("--json", arguments->json, "Write the report as JSON; - is standard output")
      ->type_name("FILE")
      ->check(can_be_written);
  command->add_option("--rules", options.rules_file, "Tolerances, dims, name maps: one a line, see docs/compare.md")
      ->type_name("FILE")
      ->check(is_no_folder);
  command
      ->add_option("--rule", options.rules,
                   "Tolerance of the names the regex is found in: 'attn_.*: rel <= 1e-3 or max_abs <= 1e-5'")
      ->type_name("RULE")
      ->allow_extra_args(false);
  command
      ->add_option("--map", options.name_maps,
                   "The target's names as the baseline's: 'target-regex => baseline-replacement'")
      ->type_name("MAP")
      ->allow_extra_args(false);
  command->add_option("--ignore-tag", options.ignored_tags, "A tag that need not be equal")
      ->type_name("TAG")
      ->allow_extra_args(false);
  command->add_option("--step-offset", options.step_offset, "The baseline's step of the target's step s is s + N")
      ->type_name("N");
  command
      ->add_option("--where", options.where,
                   "Which records to look at: 'layer_id < 3 and name.startswith(\"attn\")', see docs/filter.md")
      ->type_name("EXPR");
  command->add_option("--noise", options.noise, "A second trusted run: what it differs by from BASELINE is no fault")
      ->type_name("FOLDER");
  command->add_option("--noise-factor", options.noise_factor, "So many times the noise is still no fault")
      ->type_name("X")
      ->capture_default_str();
  command->add_flag("--allow-unpaired", arguments->allows_unpaired, "Records without a partner are no difference");
  command->add_flag("--all", arguments->shows_all, "Show every pair");
  command->add_flag("--quiet", arguments->is_quiet, "Print no report; the exit status says it");
  command->add_option("--threads", options.threads, "Threads; 0: one a core")
      ->type_name("N")
      ->check(CLI::Range(0U, 1024U))
      ->capture_default_str();
  command->add_option("--color", arguments->colour, "auto, always or never")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  command->footer("Exit status: 0 all passed, 1 something failed, 2 something could not be compared.");
  return [command, arguments] { return command->parsed() ? run_compare(*arguments) : -1; };
}

}  // namespace dbg::cli
