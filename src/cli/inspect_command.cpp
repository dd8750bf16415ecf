// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// `dbg inspect`.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/formatted.h"
#include "cli/commands.h"
#include "cli/inspect_lines.h"
#include "cli/output.h"
#include "compare/record_folder.h"
#include "dbg/error.h"
#include "dump/record_name.h"
#include "dump/record_pairing.h"

namespace dbg::cli {
namespace {

struct InspectArguments {
  std::vector<std::string> paths;
  std::string where;
  bool stops_at_bad = false;
  bool shows_values = false;
  bool is_json = false;
};

// A file of any name: what the name does not tell stays at its default.
compare::RecordFile file_of(const std::string& path) {
  compare::RecordFile file;
  file.path = path;
  const std::string name = std::filesystem::path(path).filename().string();
  if (const std::optional<Tags> pairs = parse_record_name(name)) {
    file.descriptor = describe_record(*pairs);
  } else {
    file.descriptor.name = name;
  }
  return file;
}

std::vector<compare::RecordFile> files_of(const InspectArguments& arguments) {
  const Filter where = Filter::parse(arguments.where);
  std::vector<compare::RecordFile> files;
  for (const std::string& path : arguments.paths) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
      if (!std::filesystem::exists(path, ignored))
        throw ConfigError(formatted("there is no file or folder '{}'", path));
      files.push_back(file_of(path));
      continue;
    }
    compare::RecordFolder folder = compare::open_folder(path, "inspect", where);
    if (!folder.note.empty()) complain(folder.note);
    std::move(folder.records.begin(), folder.records.end(), std::back_inserter(files));
  }
  return files;
}

int run_inspect(const InspectArguments& arguments) {
  int status = kFine;
  for (compare::RecordFile& file : files_of(arguments)) {
    const InspectedRecord record = inspect(std::move(file), arguments.shows_values);
    const bool is_bad = std::any_of(record.values.begin(), record.values.end(),
                                    [](const InspectedValue& value) { return value.is_bad(); });
    if (!record.cause.empty()) status = kBroken;
    if (!arguments.stops_at_bad || is_bad || !record.cause.empty()) {
      print(arguments.is_json ? inspect_json(record) : inspect_text(record));
    }
    if (arguments.stops_at_bad && is_bad) return status == kBroken ? kBroken : kDifferent;
  }
  if (arguments.stops_at_bad && status == kFine && !arguments.is_json) print("no record holds a NaN or an infinity\n");
  return status;
}

}  // namespace

Command add_inspect(CLI::App& app) {
  const auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command = app.add_subcommand("inspect", "Show what records hold: one line a tensor");
  command->add_option("PATH", arguments->paths, "Folders of records, or records")->required();
  command->add_option("--where", arguments->where, "Which records of folders: 'layer_id < 3', see docs/filter.md")
      ->type_name("EXPR");
  command->add_flag("--first-bad", arguments->stops_at_bad,
                    "Only the first record that holds a NaN or an infinity; then the status is 1");
  command->add_flag("--values", arguments->shows_values, "Show the corners of each tensor");
  command->add_flag("--json", arguments->is_json, "One JSON object a line");
  command->footer("Exit status: 0 all read, 1 --first-bad found one, 2 something could not be read.");
  return [command, arguments] { return command->parsed() ? run_inspect(*arguments) : -1; };
}

}  // namespace dbg::cli
