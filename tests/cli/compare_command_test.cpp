// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// `dbg compare`: statuses, files, and what a newcomer reads when something is wrong.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "compare/run_folder.h"

namespace dbg {
namespace {

using test::ProgramResult;
using test::run_program;
using test::RunFolder;
using testing::HasSubstr;
using testing::Not;

class CompareCommandTest : public testing::Test {
 protected:
  CompareCommandTest() {
    for (int layer = 0; layer < 4; ++layer) {
      const at::Tensor value = at::ones({4, 4}) * (layer + 1);
      baseline_.add("attn", value, {.tags = {{"layer_id", layer}}});
      again_.add("attn", value, {.tags = {{"layer_id", layer}}});
      target_.add("attn", layer == 2 ? value * 1.5 : value, {.tags = {{"layer_id", layer}}});
    }
  }

  ProgramResult compare(const std::vector<std::string>& more, const std::string& before = "") {
    std::vector<std::string> arguments = {"compare", baseline_.path(), target_.path()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, before);
  }

  RunFolder baseline_;
  RunFolder target_;
  RunFolder again_;
  test::TempFolder folder_;
};

TEST_F(CompareCommandTest, StatusSaysHowItWent) {
  const ProgramResult same = run_program({"compare", baseline_.path(), again_.path()});
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.out, HasSubstr("no difference: all 4 pairs have the same bits"));
  const ProgramResult other = compare({});
  EXPECT_EQ(other.status, 1) << other.err;
  EXPECT_THAT(other.out, HasSubstr("first jump: step=0 rank=0 attn layer_id=2\n"));
  RunFolder stranger;
  stranger.add("y", at::ones({1}));
  EXPECT_EQ(run_program({"compare", baseline_.path(), stranger.path()}).status, 2);
}

TEST_F(CompareCommandTest, WritesThePageAndTheJsonForTheirOwnerOnly) {
  const std::string page = (folder_ / "page.html").string();
  const std::string json = (folder_ / "report.json").string();
  std::ofstream(page) << "an older page";
  const ProgramResult result = compare({"--html", page, "--json", json});
  EXPECT_EQ(result.status, 1) << result.err;
  std::ifstream stream(json);
  EXPECT_EQ(nlohmann::json::parse(stream).at("summary").at("failed"), 1);
  std::ifstream html(page);
  std::string first;
  std::getline(html, first);
  EXPECT_EQ(first, "<!DOCTYPE html>");
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(page).permissions() & (perms::group_all | perms::others_all), perms::none);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 2) << "something was left behind";
}

TEST_F(CompareCommandTest, JsonOnStandardOutputIsAlone) {
  const ProgramResult result = compare({"--json", "-"});
  EXPECT_EQ(nlohmann::json::parse(result.out).at("pairs").size(), 4U);
  EXPECT_EQ(compare({"--quiet"}).out, "");
}

TEST_F(CompareCommandTest, RulesMapsAndTagsComeFromTheCommandLine) {
  EXPECT_EQ(compare({"--rule", ".*: rel <= 1"}).status, 0);
  EXPECT_EQ(compare({"--rule", "x: rel <= 1", "--rule", "attn: max_abs <= 2"}).status, 0);
  EXPECT_EQ(compare({"--where", "layer_id < 2"}).status, 0);
  EXPECT_EQ(compare({"--ignore-tag", "layer_id"}).status, 1);
  EXPECT_EQ(compare({"--map", "attn => x"}).status, 2);
  EXPECT_EQ(compare({"--noise", target_.path()}).status, 0);
  EXPECT_EQ(compare({"--step-offset", "1"}).status, 2);
  baseline_.add("lonely", at::ones({1}));
  EXPECT_EQ(compare({"--rule", ".*: rel <= 1"}).status, 1);
  EXPECT_EQ(compare({"--rule", ".*: rel <= 1", "--allow-unpaired"}).status, 0);
}

TEST_F(CompareCommandTest, AllShowsEveryPair) {
  EXPECT_THAT(compare({"--all", "--threads", "1"}).out, HasSubstr("attn layer_id=0 "));
}

TEST_F(CompareCommandTest, ColoursComeWhenAskedForAndNotIntoAFile) {
  EXPECT_THAT(compare({}).out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(compare({"--color", "always"}, "NO_COLOR=1").out, HasSubstr("\x1b[31m"));
}

TEST_F(CompareCommandTest, ATerminalGetsColoursUnlessTheyAreRefused) {
  const std::vector<std::string> arguments = {"compare", baseline_.path(), target_.path()};
  const ProgramResult coloured = test::run_program_on_terminal(arguments, "TERM=xterm NO_COLOR=");
  EXPECT_EQ(coloured.status, 1);
  EXPECT_THAT(coloured.out, HasSubstr("\x1b[31m"));
  const ProgramResult plain = test::run_program_on_terminal(arguments, "TERM=xterm NO_COLOR=1");
  EXPECT_THAT(plain.out, HasSubstr("first jump"));
  EXPECT_THAT(plain.out, Not(HasSubstr("\x1b")));
}

TEST_F(CompareCommandTest, WrongOptionsAreRefusedInWords) {
  const auto complaint = [this](const std::vector<std::string>& more) {
    const ProgramResult result = compare(more);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(complaint({"--rule", "attn"}), HasSubstr("expected 'regex: tolerance'"));
  EXPECT_THAT(complaint({"--rule", "x: rell <= 1"}), HasSubstr("'rell' is none of rel, max_abs"));
  EXPECT_THAT(complaint({"--rules", "not/there"}), HasSubstr("rules file 'not/there' can't be opened"));
  const std::string rules = (folder_ / "rules").string();
  std::ofstream(rules) << "rule attn: rel <= 1\ntolerance attn: rel <= 1\n";
  EXPECT_THAT(complaint({"--rules", rules}), HasSubstr("line 2: 'tolerance' begins no rule; rules are rule, dims"));
  EXPECT_THAT(complaint({"--map", "x"}), HasSubstr("=>"));
  EXPECT_THAT(complaint({"--where", "layer_id <"}), HasSubstr("column"));
  EXPECT_THAT(complaint({"--noise-factor", "-1"}), HasSubstr("expected a number above 0"));
  EXPECT_THAT(complaint({"--html", folder_.path().string()}), HasSubstr("is a folder; name the file to write"));
  EXPECT_THAT(complaint({"--json", "no/such/folder/x.json"}), HasSubstr("there is no folder 'no/such/folder'"));
  EXPECT_THAT(complaint({"--bogus"}), HasSubstr("--bogus"));
  EXPECT_THAT(complaint({"--threads", "-1"}), HasSubstr("not in range 0 to 1024"));
  EXPECT_THAT(complaint({"--where", "layer_id == 99"}), HasSubstr("is let through by --where"));
}

TEST_F(CompareCommandTest, FoldersInOptionsPlacesAreNoticed) {
  const ProgramResult missing = run_program({"compare", "--json", baseline_.path(), target_.path()});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("is a folder; name the file to write"));
  const ProgramResult rules = run_program({"compare", "--rules", baseline_.path(), target_.path()});
  EXPECT_EQ(rules.status, 2);
  EXPECT_THAT(rules.err, HasSubstr("is a folder; name the file to read"));
  for (const char* option : {"--noise", "--rule", "--map"}) {
    const ProgramResult taken = run_program({"compare", option, baseline_.path(), target_.path()});
    EXPECT_EQ(taken.status, 2);
    EXPECT_EQ(taken.err, "dbg: TARGET is required; '" + baseline_.path() + "' was taken as the value of " + option +
                             "\ndbg: see dbg compare --help\n");
  }
  const ProgramResult none = run_program({"compare", baseline_.path(), "not-there"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("dbg: target: folder 'not-there' can't be listed: No such file"));
  EXPECT_THAT(none.err, HasSubstr("name the folder that a run dumped into"));
  const ProgramResult empty = run_program({"compare", baseline_.path(), folder_.path().string()});
  EXPECT_EQ(empty.status, 2);
  EXPECT_THAT(empty.err, HasSubstr("holds no records"));
  EXPECT_THAT(empty.err, HasSubstr("name the folder that a run dumped into"));
}

TEST_F(CompareCommandTest, DamagedRecordsAreLinesAndStatusTwo) {
  const std::string cut = target_.add("cut", at::ones({64}));
  baseline_.add("cut", at::ones({64}));
  std::filesystem::resize_file(cut, 300);
  const ProgramResult result = compare({});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.out, HasSubstr("unreadable: 1 records"));
  EXPECT_THAT(result.out, HasSubstr("name=cut"));
  EXPECT_THAT(result.out, HasSubstr("first jump: step=0 rank=0 attn layer_id=2"));
  EXPECT_THAT(result.out, HasSubstr("mend that, or leave the records out by --where"));
  EXPECT_EQ(compare({"--where", "name != 'cut'"}).status, 1);
}

TEST_F(CompareCommandTest, TheAnswerIsPrintedEvenWhereItsFileCanNotBeWritten) {
  const ProgramResult result = compare({"--json", "/dev/full"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.out, HasSubstr("first jump: step=0 rank=0 attn layer_id=2"));
  EXPECT_THAT(result.err, HasSubstr("file '/dev/full' can't be written: No space left"));
}

TEST(ProgramTest, EachOptionStandsInTheDocument) {
  std::ifstream file(std::string(std::getenv("DBG_TEST_SOURCE_DIR")) + "/docs/compare.md");
  const std::string document{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  for (const char* command : {"compare", "inspect"}) {
    const std::string help = run_program({command, "--help"}).out;
    int options = 0;
    for (std::size_t at = help.find("\n  --"); at != std::string::npos; at = help.find("\n  --", at + 1)) {
      const std::string option = help.substr(at + 3, help.find_first_of(" \n", at + 3) - at - 3);
      EXPECT_THAT(document, HasSubstr(option));
      ++options;
    }
    EXPECT_GE(options, 4) << command;
  }
}

TEST(ProgramTest, BashCompletesCommandsAndOptions) {
  const test::TempFolder folder;
  const ProgramResult script = run_program({"completion", "bash"});
  ASSERT_EQ(script.status, 0) << script.err;
  std::ofstream(folder / "asked") << script.out
                                  << "ask() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _dbg dbg \"${!#}\";"
                                     " echo \"${COMPREPLY[*]}\"; }\n"
                                     "ask dbg co\nask dbg compare --noise\nask dbg inspect --f\n"
                                     "ask dbg compare some/folder\n";
  const std::string line = "bash " + test::shell_quoted((folder / "asked").string()) + " >" +
                           test::shell_quoted((folder / "answers").string());
  ASSERT_EQ(std::system(line.c_str()), 0);
  std::ifstream file(folder / "answers");
  const std::string answers{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(answers, "compare completion\n--noise --noise-factor\n--first-bad\n\n");
  EXPECT_THAT(run_program({"completion", "zsh"}).err, HasSubstr("bash"));
}

TEST(ProgramTest, HelpIsStatusZeroAndNoCommandIsTwo) {
  const ProgramResult help = run_program({"compare", "--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* option : {"--html", "--noise", "--map", "--rule", "Exit status"}) {
    EXPECT_THAT(help.out, HasSubstr(option));
  }
  const ProgramResult nothing = run_program({});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, HasSubstr("no command is given; there are compare, inspect and completion\ndbg: see dbg"));
  EXPECT_THAT(run_program({"cmp", "a", "b"}).err, HasSubstr("'cmp' is no command\ndbg: see dbg --help"));
  EXPECT_EQ(run_program({"--version"}).status, 0);
}

}  // namespace
}  // namespace dbg
