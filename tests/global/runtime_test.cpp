// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The environment: what it may say, what a wrong word costs, and programs that use the process's own Dumper.
#include "dbg/runtime.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/formatted.h"
#include "dbg/config.h"
#include "dbg/error.h"
#include "dbg/log.h"
#include "dbg/participant.h"
#include "support/log_capture.h"
#include "support/rank_processes.h"
#include "support/record_files.h"
#include "support/scoped_env.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

namespace fs = std::filesystem;
using test::ScopedEnv;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

using Environment = std::map<std::string, std::optional<std::string>>;

// --- from_env() ---

// All knobs' variables unset for the length of a scope.
class NoDumperVariables {
 public:
  NoDumperVariables() {
    for (const ConfigKnob& knob : config_knobs()) {
      scoped_.push_back(std::make_unique<ScopedEnv>(knob.variable, std::nullopt));
    }
  }

 private:
  std::vector<std::unique_ptr<ScopedEnv>> scoped_;
};

// Values that a knob does not take, by what it takes. Empty: it takes any text.
std::vector<std::string> wrong_values(const ConfigKnob& knob) {
  if (knob.type == "bool") return {"2", "-1", "yess", "true false", "None", "1.0"};
  if (knob.type == "int") return {"abc", "1.5", "1e3", "0x10", "10 s", "99999999999", "-99999999999", "-2", "--1"};
  if (knob.accepted.find("expression") != std::string::npos) return {"layer_id ==", "(", "import os", "name @ 'x'"};
  if (knob.accepted.find("path component") != std::string::npos) {
    return {"a/b", "/", "..", ".", std::string(256, 'x'), "a\nb"};
  }
  if (knob.accepted == "a path" || knob.accepted == "any text") return {};
  return {"a word that nobody takes", "70000", "1.5"};  // one of several words, or a port
}

TEST(FromEnvTest, EachWrongValueIsOneErrorThatNamesVariableValueAndWhatIsAccepted) {
  const NoDumperVariables clean;
  std::size_t refused = 0;
  for (const ConfigKnob& knob : config_knobs()) {
    for (const std::string& value : wrong_values(knob)) {
      SCOPED_TRACE(knob.variable + "=" + value);
      const ScopedEnv wrong(knob.variable, value);
      try {
        DumperConfig::from_env();
        ADD_FAILURE() << "was taken";
      } catch (const ConfigError& error) {
        std::string shown = value.substr(0, 100);
        std::replace(shown.begin(), shown.end(), '\n', ' ');
        EXPECT_THAT(error.what(), AllOf(HasSubstr(knob.variable), HasSubstr("'" + shown), HasSubstr(knob.accepted)));
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100u);
}

TEST(FromEnvTest, OnlyKnobsThatTakeAnyTextHaveNoWrongValue) {
  for (const ConfigKnob& knob : config_knobs()) {
    if (wrong_values(knob).empty()) {
      EXPECT_THAT(knob.type, StartsWith("text")) << knob.name;
    }
  }
}

TEST(FromEnvTest, SeveralWrongValuesAreOneErrorThatNamesThemAll) {
  const NoDumperVariables clean;
  const ScopedEnv a("DUMPER_ENABLE", "maybe");
  const ScopedEnv b("DUMPER_COLLECTIVE_TIMEOUT", "soon");
  const ScopedEnv c("DUMPER_EXP_NAME", "a/b");
  try {
    DumperConfig::from_env();
    FAIL() << "three wrong values were taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("DUMPER_ENABLE"), HasSubstr("'maybe'"), HasSubstr("'soon'"),
                                    HasSubstr("DUMPER_COLLECTIVE_TIMEOUT"), HasSubstr("'a/b'")));
  }
}

TEST(FromEnvTest, RightValuesAreTakenInEverySpelling) {
  const NoDumperVariables clean;
  for (const char* yes : {"1", "true", "TRUE", "Yes", "on", " on "}) {
    const ScopedEnv on("DUMPER_ENABLE", yes);
    EXPECT_TRUE(DumperConfig::from_env().enable) << yes;
  }
  for (const char* no : {"0", "false", "No", "OFF", "", "  "}) {
    const ScopedEnv off("DUMPER_ENABLE_VALUE", no);
    EXPECT_EQ(DumperConfig::from_env().enable_value, std::string_view(no).find_first_not_of(' ') == std::string::npos)
        << "'" << no << "': blank is the default, which is on";
  }
  const ScopedEnv filter("DUMPER_FILTER", "name == 'a=b'");
  const ScopedEnv port("DUMPER_SERVER_PORT", "0");
  EXPECT_EQ(DumperConfig::from_env().filter, "name == 'a=b'");
  EXPECT_EQ(DumperConfig::from_env().server_port, "0");
}

// --- Programs that use the global Dumper ---

void say(const std::string& text) {
  ASSERT_EQ(::write(STDOUT_FILENO, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

struct Layer {
  std::map<std::string, at::Tensor> parameters;
  const std::map<std::string, at::Tensor>& named_parameters() const { return parameters; }
};

// A model of two steps, with a dump point of each kind; prints its result.
DBG_RANK_BODY(run_a_model) {
  at::Tensor x = at::arange(8, at::kFloat) / 7 + context.rank;
  const Layer layer{{{"weight", at::full({2}, 3.0)}}};
  for (int step_number = 0; step_number < 2; ++step_number) {
    x = at::tanh(x * 1.5);
    dbg::dump("x", x, {{"layer_id", step_number}});
    dbg::dump_dict("pair", std::map<std::string, at::Tensor>{{"a", x}, {"b", x}});
    const DumpModelReport report = dbg::dump_model(layer);
    if (!report.children.empty() && report.children.front() != "weight") throw std::runtime_error("children");
    dbg::step();
  }
  say(formatted("result={:a}\n", x.sum().item<double>()));
  say(formatted("enabled={}\n", static_cast<int>(detail::global_enabled.load())));
}

DBG_RANK_BODY(ask_for_it_directly) {
  Dumper& first = Dumper::global();
  say(first.is_enabled() ? "on\n" : "off\n");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(&Dumper::global(), &first); });
  }
  for (std::thread& thread : threads) thread.join();
}

DBG_RANK_BODY(dump_first_from_many_threads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] { dbg::dump("x", at::full({2}, i, at::kFloat), {{"i", i}}); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Dumper::global().state().counters.written, 8u);
}

// A client's handler may come back to the Dumper while that is being made.
DBG_RANK_BODY(dump_from_the_log_handler) {
  int lines = 0;
  set_log_handler([&](LogLevel, std::string_view) {
    ++lines;
    dbg::dump("from the handler", at::zeros({1}));
    (void)Dumper::global().state();
  });
  dbg::dump("x", at::zeros({1}));
  set_log_handler(nullptr);
  EXPECT_GE(lines, 1);
  EXPECT_EQ(Dumper::global().state().counters.failed, 0u);
}

// A client's handler may need a lock that another thread holds while it dumps for the first time.
DBG_RANK_BODY(wait_for_a_dumping_thread_in_the_log_handler) {
  std::atomic<bool> is_first{true};
  set_log_handler([&](LogLevel, std::string_view line) {
    if (is_first.exchange(false)) std::thread([] { dbg::dump("from a thread", at::zeros({1})); }).join();
    say(std::string(line) + "\n");
  });
  dbg::dump("x", at::zeros({1}));
  set_log_handler(nullptr);
  EXPECT_FALSE(is_first);
  EXPECT_EQ(Dumper::global().state().counters.written, 2u);
}

// What a client's static destructor may do; made before main() and so destroyed after everything that main() made.
struct DumpsAtExit {
  bool is_armed = false;
  ~DumpsAtExit() {
    if (!is_armed) return;
    Dumper::global().set_ctx({{"phase", "exit"}});
    dbg::dump("late", at::ones({3}));
    const DumperCounters counters = Dumper::global().state().counters;
    say(formatted("at exit: written={} failed={}\n", counters.written, counters.failed));
  }
};
DumpsAtExit at_exit;

DBG_RANK_BODY(dump_at_exit) {
  at_exit.is_armed = true;
  Dumper& dumper = Dumper::global();
  dumper.set_ctx({{"a_key_that_is_long_enough", "a value that is long enough to be allocated"}});
  const at::Tensor x = at::ones({3});
  dbg::dump("x", x);
  // With the scope's below, as many contexts as fill the thread's list: whoever adds one looks through all of them.
  Dumper other(dumper.state().config);
  other.set_ctx({{"of", "another"}});
  Dumper third(dumper.state().config);
  third.set_ctx({{"of", "a third"}});
  // Ends the program inside the scope, as exit() deep in a model would.
  const ParticipantScope bound(std::make_shared<const Participant>(1, 2));
  const ContextScope scope(dumper, {{"scope", "another value that is long enough to be allocated"}});
  dbg::dump("y", x);
  std::exit(testing::Test::HasFailure() ? 1 : 0);
}

class GlobalDumperTest : public testing::Test {
 protected:
  fs::path dir() const { return folder_ / "base"; }
  std::string run(const std::string& body, Environment environment) const {
    for (const ConfigKnob& knob : config_knobs()) environment.emplace(knob.variable, std::nullopt);
    if (!environment["DUMPER_DIR"]) environment["DUMPER_DIR"] = dir().string();
    const auto results = test::spawn_ranks({.body = body, .environment = environment});
    test::expect_all_passed(results);
    return results.front().output;
  }
  static std::string result_in(const std::string& output) {
    const std::size_t at = output.find("result=");
    return at == std::string::npos ? "no result" : output.substr(at, output.find('\n', at) - at);
  }

  test::TempFolder folder_;
};

TEST_F(GlobalDumperTest, IsOffWithoutVariablesAndSaysNothing) {
  const std::string output = run("run_a_model", {});
  EXPECT_THAT(output, AllOf(StartsWith("result="), HasSubstr("enabled=0")));
  EXPECT_THAT(output, Not(HasSubstr("Dumper")));
  EXPECT_FALSE(fs::exists(dir()));
}

TEST_F(GlobalDumperTest, RecordsWhatTheEnvironmentAsksForAndChangesNoResult) {
  const std::string off = run("run_a_model", {});
  const std::string on = run("run_a_model", {{"DUMPER_ENABLE", "1"},
                                             {"DUMPER_EXP_NAME", "run"},
                                             {"DUMPER_ENABLE_MODEL_VALUE", "yes"},
                                             {"DUMPER_ENABLE_OUTPUT_CONSOLE", "0"}});
  EXPECT_EQ(result_in(on), result_in(off));
  EXPECT_THAT(on, HasSubstr("enabled=1"));
  EXPECT_THAT(test::experiments_in(dir()), ElementsAre("run"));
  EXPECT_THAT(test::tags_in(dir() / "run", "name"),
              ElementsAre("x", "pair_a", "pair_b", "param__weight", "x", "pair_a", "pair_b", "param__weight"));
  EXPECT_THAT(test::tags_in(dir() / "run", "step"), ElementsAre("0", "0", "0", "0", "1", "1", "1", "1"));
}

TEST_F(GlobalDumperTest, FilterAndRankComeFromTheEnvironment) {
  run("run_a_model", {{"DUMPER_ENABLE", "1"},
                      {"DUMPER_EXP_NAME", "run"},
                      {"DUMPER_FILTER", "name == 'x' and layer_id == 1"},
                      {"RANK", "3"},
                      {"WORLD_SIZE", "4"}});
  EXPECT_THAT(test::names_in(dir() / "run"),
              ElementsAre("step=1___rank=3___dump_index=1___name=x___recompute_status=disabled___layer_id=1.pt"));
}

TEST_F(GlobalDumperTest, AWrongValueTurnsItOffInOneLoudLineAndNotTheProgram) {
  const std::string right = result_in(run("run_a_model", {}));
  for (const auto& [variable, value] : std::vector<std::pair<std::string, std::string>>{
           {"DUMPER_ENABLE", "maybe"}, {"DUMPER_FILTER", "layer_id =="}, {"DUMPER_EXP_NAME", "a/b"}}) {
    SCOPED_TRACE(variable);
    Environment environment = {{"DUMPER_ENABLE", "1"}};
    environment[variable] = value;
    const std::string output = run("run_a_model", environment);
    EXPECT_EQ(result_in(output), right);
    EXPECT_THAT(output, HasSubstr("enabled=0"));
    const std::string line = output.substr(0, output.find('\n'));
    EXPECT_THAT(line, AllOf(StartsWith("[Dumper, rank=0, t="), HasSubstr("DUMPING IS OFF"), HasSubstr(variable),
                            HasSubstr("'" + value), HasSubstr("accepted")));
    EXPECT_THAT(output.substr(line.size() + 1), StartsWith("result=")) << "more than one line";
    EXPECT_FALSE(fs::exists(dir()));
  }
}

TEST_F(GlobalDumperTest, SeveralWrongValuesAreStillOneLine) {
  const std::string output = run("run_a_model", {{"DUMPER_ENABLE", "maybe"}, {"DUMPER_EXP_NAME", "a/b"}});
  EXPECT_THAT(output.substr(0, output.find('\n')), AllOf(HasSubstr("'maybe'"), HasSubstr("'a/b'")));
  EXPECT_THAT(output.substr(output.find('\n') + 1), StartsWith("result="));
}

TEST_F(GlobalDumperTest, IsOneObjectForAllWhoAsk) {
  EXPECT_EQ(run("ask_for_it_directly", {}), "off\n");
  EXPECT_THAT(run("ask_for_it_directly", {{"DUMPER_ENABLE", "nope"}}), testing::EndsWith("off\n"));
  EXPECT_THAT(run("ask_for_it_directly", {{"DUMPER_ENABLE", "on"}}), testing::EndsWith("on\n"));
}

TEST_F(GlobalDumperTest, ManyThreadsMayComeFirst) {
  run("dump_first_from_many_threads", {{"DUMPER_ENABLE", "1"}});
  ASSERT_THAT(test::experiments_in(dir()), SizeIs(1));
  EXPECT_THAT(test::names_in(dir() / test::experiments_in(dir()).front()), SizeIs(8));
}

TEST_F(GlobalDumperTest, TheLogHandlerMayComeBackWhileItIsMade) {
  // The unknown variable costs a line while the configuration is read.
  run("dump_from_the_log_handler", {{"DUMPER_ENABLE", "1"}, {"DUMPER_ENABEL", "1"}});
}

TEST_F(GlobalDumperTest, TheLogHandlerMayWaitForAThreadThatDumps) {
  const std::string output = run("wait_for_a_dumping_thread_in_the_log_handler",
                                 {{"DUMPER_ENABLE", "1"}, {"DUMPER_ENABEL", "1"}, {"DUMPER_STRCIT", "1"}});
  EXPECT_THAT(output, AllOf(HasSubstr("DUMPER_ENABEL"), HasSubstr("DUMPER_STRCIT"))) << "no line is lost";
}

// Freed memory is filled with a pattern, so that whoever still uses it falls; but for what the allocator keeps at hand
// for the thread, of which there is to be none.
TEST_F(GlobalDumperTest, AStaticDestructorMayDump) {
  const std::string output = run("dump_at_exit", {{"DUMPER_ENABLE", "1"},
                                                  {"DUMPER_EXP_NAME", "run"},
                                                  {"MALLOC_PERTURB_", "165"},
                                                  {"GLIBC_TUNABLES", "glibc.malloc.tcache_count=0"}});
  EXPECT_THAT(output, HasSubstr("at exit: written=3 failed=0"));
  EXPECT_THAT(test::tags_in(dir() / "run", "name"), testing::UnorderedElementsAre("x", "y", "late"));
}

}  // namespace
}  // namespace dbg
