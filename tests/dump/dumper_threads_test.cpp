// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about dumping from several threads: threads of one rank, and ranks that are threads.
#include <ATen/ATen.h>
#include <pthread.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dump/dumper_fixture.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/sanitizers.h"

namespace dbg {
namespace {

using test::has_meta;
using test::meta_of;
using test::run_ranks_as_threads;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class DumperThreadsTest : public test::DumperFixture {};

void run_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(DumperThreadsTest, FourThreadsOfOneRankLoseNoRecord) {
  Dumper dumper(config());
  const at::Tensor value = at::ones({3});
  run_threads(4, [&](int thread) {
    for (int i = 0; i < 1000; ++i) dumper.dump("x", value, {{"thread", thread}, {"i", i}});
  });
  const auto indices = file_tags("dump_index");
  EXPECT_EQ(indices.size(), 4000u);
  const std::set<std::string> distinct(indices.begin(), indices.end());
  EXPECT_EQ(distinct.size(), 4000u);
  EXPECT_EQ(distinct.count("1"), 1u);
  EXPECT_EQ(distinct.count("4000"), 1u);
  EXPECT_EQ(dumper.state().counters.written, 4000u);
  EXPECT_EQ(dumper.state().counters.failed, 0u);
  EXPECT_EQ(dumper.state().dump_index, 4000);
  std::set<std::string> calls;
  for (const Tags& tags : files()) calls.insert(test::tag_text(tags, "thread") + "/" + test::tag_text(tags, "i"));
  EXPECT_EQ(calls.size(), 4000u);
}

TEST_F(DumperThreadsTest, TwoThreadsThatConfigureLoseNoChange) {
  Dumper dumper(config());
  run_threads(2, [&](int thread) {
    const std::string field = thread == 0 ? "collective_timeout=" : "exp_name=run";
    for (int i = 1; i <= 500; ++i) {
      dumper.configure({field + std::to_string(i)});
      const DumperConfig now = dumper.state().config;
      if (thread == 0) {
        ASSERT_EQ(now.collective_timeout, i);
      } else {
        ASSERT_EQ(now.exp_name, "run" + std::to_string(i));
      }
    }
  });
}

// A key that only the twin has costs a line while the new configuration is made: there another thread makes its own.
TEST_F(DumperThreadsTest, AChangeThatComesWhileAnotherIsMadeIsKept) {
  Dumper dumper(config());
  std::atomic<bool> is_first{true};
  set_log_handler([&](LogLevel, std::string_view) {
    if (is_first.exchange(false)) std::thread([&] { dumper.configure({"exp_name=theirs"}); }).join();
  });
  dumper.configure({"source_patcher_config=x", "collective_timeout=7"});
  set_log_handler(nullptr);
  EXPECT_FALSE(is_first);
  EXPECT_EQ(dumper.state().config.exp_name, "theirs");
  EXPECT_EQ(dumper.state().config.collective_timeout, 7);
}

TEST_F(DumperThreadsTest, RanksAsThreadsKeepStepIndexAndNamesApart) {
  Dumper dumper(config());
  run_ranks_as_threads(2, [&](int rank) {
    for (int step = 0; step <= rank; ++step) {
      dumper.dump("x", at::full({2}, rank), {{"from", rank}});
      dumper.step();
    }
    EXPECT_EQ(dumper.state().step, rank + 1);
    EXPECT_EQ(dumper.state().dump_index, rank + 1);
  });
  EXPECT_THAT(file_names(),
              ElementsAre("step=0___rank=0___dump_index=1___name=x___recompute_status=disabled___from=0.pt",
                          "step=0___rank=1___dump_index=1___name=x___recompute_status=disabled___from=1.pt",
                          "step=1___rank=1___dump_index=2___name=x___recompute_status=disabled___from=1.pt"));
  const std::vector<int> ranks{0, 1, 1};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const DumpRecord record = test::read_file(paths().at(i));
    EXPECT_TRUE(at::equal(record.value.toTensor(), at::full({2}, ranks[i])));
    EXPECT_EQ(meta_of(record, "rank").toInt(), ranks[i]);
    EXPECT_EQ(meta_of(record, "world_rank").toInt(), ranks[i]);
    EXPECT_EQ(meta_of(record, "world_size").toInt(), 2);
    EXPECT_EQ(meta_of(record, "from").toInt(), ranks[i]);
  }
}

TEST_F(DumperThreadsTest, APluginThatThrowsOnOneRankCostsOneWarningThereAndNothingElse) {
  Dumper dumper(config({"include_parallel_rank_in_filename=true"}));
  struct WithoutGroupsOnRankOne : test::FakePlugin {
    ParallelState collect_parallel_info() override {
      if (current_participant()->rank() == 1) throw std::runtime_error("no groups on this rank");
      return ParallelState().set("tp", current_participant()->rank(), 2);
    }
  };
  dumper.add_plugin(std::make_shared<WithoutGroupsOnRankOne>());
  run_ranks_as_threads(2, [&](int rank) {
    for (int i = 0; i < 50; ++i) dumper.dump("x", at::full({2}, rank));
  });
  ASSERT_EQ(paths().size(), 100u);
  int of_rank_one = 0;
  for (const std::string& path : paths()) {
    const DumpRecord record = test::read_file(path);
    const std::int64_t rank = meta_of(record, "rank").toInt();
    of_rank_one += rank == 1 ? 1 : 0;
    EXPECT_TRUE(at::equal(record.value.toTensor(), at::full({2}, rank))) << path;
    EXPECT_EQ(path.find("___tp_rank=0.pt") != std::string::npos, rank == 0) << path;
    EXPECT_EQ(has_meta(record, "tp_rank"), rank == 0) << path;
    EXPECT_EQ(has_meta(record, "megatron_parallel_info"), rank == 0) << path;
  }
  EXPECT_EQ(of_rank_one, 50);
  const auto lines = log_.lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines.front().level, LogLevel::warning);
  EXPECT_THAT(lines.front().text, AllOf(HasSubstr("rank=1,"), HasSubstr("no groups on this rank")));
  EXPECT_EQ(dumper.state().counters.written, 100u);
  EXPECT_EQ(dumper.state().counters.failed, 0u);
  EXPECT_EQ(dumper.state().counters.plugin_faults, 50u);
}

TEST_F(DumperThreadsTest, CaptureIsOfOneRank) {
  Dumper dumper(config());
  run_ranks_as_threads(2, [&](int rank) {
    const auto capture = dumper.capture_output();
    for (int i = 0; i < 10; ++i) dumper.dump("x", at::full({2}, rank));
    const auto records = capture.records().at("x");
    ASSERT_EQ(records.size(), 10u);
    for (const DumpRecord& record : records) {
      EXPECT_EQ(meta_of(record, "rank").toInt(), rank);
      EXPECT_EQ(meta_of(record, "world_rank").toInt(), rank);
      EXPECT_EQ(meta_of(record, "world_size").toInt(), 2);
      EXPECT_TRUE(at::equal(record.value.toTensor(), at::full({2}, rank)));
    }
  });
  EXPECT_TRUE(paths().empty());
}

TEST_F(DumperThreadsTest, EveryThreadOfTheRankIsCaptured) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  run_threads(4, [&](int) {
    for (int i = 0; i < 50; ++i) dumper.dump("x", at::ones({2}));
  });
  const auto records = capture.records().at("x");
  std::set<std::int64_t> indices;
  for (const DumpRecord& record : records) indices.insert(meta_of(record, "dump_index").toInt());
  EXPECT_EQ(indices.size(), 200u);
}

TEST_F(DumperThreadsTest, NewThreadStartsWithTheParticipantsContext) {
  Dumper dumper(config());
  dumper.set_ctx({{"phase", "prefill"}});
  const auto capture = dumper.capture_output();
  std::thread([&] {
    dumper.dump("inherits", at::ones({2}));
    dumper.set_ctx({{"phase", "other"}, {"worker", 1}});
    dumper.dump("own", at::ones({2}));
    dumper.set_ctx({{"phase", nullptr}, {"worker", nullptr}});
    dumper.dump("emptied", at::ones({2}));
  }).join();
  dumper.dump("main", at::ones({2}));
  const auto records = capture.records();
  EXPECT_EQ(meta_of(records.at("inherits").at(0), "phase").toStringRef(), "prefill");
  EXPECT_EQ(meta_of(records.at("own").at(0), "phase").toStringRef(), "other");
  EXPECT_FALSE(has_meta(records.at("emptied").at(0), "phase"));
  EXPECT_EQ(meta_of(records.at("main").at(0), "phase").toStringRef(), "prefill");
  EXPECT_FALSE(has_meta(records.at("main").at(0), "worker"));
}

TEST_F(DumperThreadsTest, ContextIsNotSharedBetweenRanks) {
  Dumper dumper(config());
  run_ranks_as_threads(2, [&](int rank) {
    const auto capture = dumper.capture_output();
    dumper.dump("before", at::ones({2}));
    dumper.set_ctx({{"mine", rank}});
    dumper.dump("after", at::ones({2}));
    EXPECT_FALSE(has_meta(capture.records().at("before").at(0), "mine"));
    EXPECT_EQ(meta_of(capture.records().at("after").at(0), "mine").toInt(), rank);
  });
}

TEST_F(DumperThreadsTest, ContextScopeIsOfItsThread) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  dumper.set_ctx({{"phase", "all"}});
  std::thread([&] { dumper.dump("prepare", at::ones({2})); }).join();
  run_threads(4, [&](int thread) {
    for (int i = 0; i < 50; ++i) {
      const ContextScope scope(dumper, {{"thread", thread}, {"phase", "inner"}});
      dumper.dump("x", at::ones({1}), {{"expected", thread}});
    }
    dumper.dump("outside", at::ones({1}));
  });
  const auto records = capture.records();
  for (const DumpRecord& record : records.at("x")) {
    EXPECT_EQ(meta_of(record, "thread").toInt(), meta_of(record, "expected").toInt());
    EXPECT_EQ(meta_of(record, "phase").toStringRef(), "inner");
  }
  for (const DumpRecord& record : records.at("outside")) {
    EXPECT_EQ(meta_of(record, "phase").toStringRef(), "all");
    EXPECT_FALSE(has_meta(record, "thread"));
  }
}

TEST_F(DumperThreadsTest, AScopeIsNotSeenByThreadsThatComeInsideIt) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  std::promise<void> is_dumped;
  std::promise<void> is_left;
  std::thread worker;
  {
    const ContextScope scope(dumper, {{"layer_id", 3}});
    dumper.set_ctx({{"phase", "decode"}, {"layer_id", 4}});
    worker = std::thread([&] {
      dumper.dump("inside", at::ones({1}));
      is_dumped.set_value();
      is_left.get_future().wait();
      dumper.dump("after", at::ones({1}));
    });
    is_dumped.get_future().wait();
    dumper.dump("home", at::ones({1}));
  }
  is_left.set_value();
  worker.join();
  std::thread([&] { dumper.dump("late", at::ones({1})); }).join();
  dumper.dump("home_after", at::ones({1}));
  const auto records = capture.records();
  const auto layer_id = [&](const char* name) {
    const DumpRecord& record = records.at(name).at(0);
    return has_meta(record, "layer_id") ? meta_of(record, "layer_id").toInt() : -1;
  };
  EXPECT_EQ(layer_id("home"), 4);
  EXPECT_EQ(layer_id("inside"), 4) << "what set_ctx set, not what the scope added";
  EXPECT_EQ(layer_id("after"), 4) << "a context of its own";
  EXPECT_EQ(layer_id("late"), -1) << "the scope's end took the key back for all who come";
  EXPECT_EQ(layer_id("home_after"), -1);
  for (const char* name : {"home", "inside", "after", "late", "home_after"}) {
    EXPECT_EQ(meta_of(records.at(name).at(0), "phase").toStringRef(), "decode") << name;
  }
}

TEST_F(DumperThreadsTest, AWorkerThatFirstDumpsInsideAScopeDoesNotKeepIt) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  std::promise<void> is_left;
  std::thread worker;
  {
    const ContextScope scope(dumper, {{"layer_id", 3}});
    std::promise<void> is_dumped;
    worker = std::thread([&] {
      dumper.dump("w", at::ones({1}));
      is_dumped.set_value();
      is_left.get_future().wait();
      dumper.dump("w", at::ones({1}));
    });
    is_dumped.get_future().wait();
  }
  is_left.set_value();
  worker.join();
  const auto records = capture.records();
  for (const DumpRecord& record : records.at("w")) EXPECT_FALSE(has_meta(record, "layer_id"));
}

TEST_F(DumperThreadsTest, SettingsMayChangeWhileThreadsDump) {
  Dumper dumper(config({"enable_output_file=false", "enable_grad=true"}));
  std::atomic<bool> done{false};
  std::thread changing([&] {
    for (int i = 0; i < 200; ++i) {
      dumper.configure({i % 2 == 0 ? "filter=layer_id == 1" : "filter="});
      auto plugin = std::make_shared<test::FakePlugin>();
      plugin->state.set("tp", 1, 2);
      PluginHandle handle = dumper.add_plugin(plugin);
      dumper.set_interceptor([](const Interception&) {});
      dumper.set_interceptor({});
      handle.remove();
      (void)dumper.state();
      dumper.configure({i % 3 == 0 ? "enable=false" : "enable=true"});
    }
    done = true;
  });
  run_ranks_as_threads(2, [&](int rank) {
    const auto capture = dumper.capture_output();
    for (int i = 0; !done; ++i) {
      const at::Tensor leaf = at::ones({2}).requires_grad_();
      const ContextScope scope(dumper, {{"i", i}});
      dumper.dump("x", leaf, {{"layer_id", rank}});
      leaf.sum().backward();
      dumper.step();
    }
    dumper.reset();
  });
  changing.join();
  EXPECT_EQ(dumper.state().counters.failed, 0u);
}

TEST_F(DumperThreadsTest, TwoStagesAsThreadsGiveSixDistinctParameters) {
  Dumper dumper(config({"enable_model_value=true"}));
  dumper.add_plugin(std::make_shared<PipelineLayerOffsetPlugin>(
      [](int) -> std::optional<std::int64_t> { return current_participant()->rank() * 3; }));
  struct Stage {
    std::vector<std::pair<std::string, at::Tensor>> named_parameters() const {
      std::vector<std::pair<std::string, at::Tensor>> parameters;
      for (int i = 0; i < 3; ++i) {
        parameters.emplace_back("layers." + std::to_string(i) + ".weight", at::full({2}, first + i));
      }
      return parameters;
    }
    int first;
  };
  run_ranks_as_threads(2, [&](int rank) { dumper.dump_model(Stage{3 * rank}); });
  EXPECT_THAT(file_tags("name"),
              UnorderedElementsAre("param__layers.0.weight", "param__layers.1.weight", "param__layers.2.weight",
                                   "param__layers.3.weight", "param__layers.4.weight", "param__layers.5.weight"));
}

// ---- Threads that are being cancelled ----

// Everything that a dump may do, on threads that are to be cancelled: the name is claimed among ranks, earlier folders
// are looked through, a filter asks a plugin, file and line are written.
DBG_RANK_BODY(dumps_while_about_to_be_cancelled) {
  DumperConfig config;
  config.enable = true;
  config.dir = context.argument;
  config.cleanup_previous = true;
  config.enable_grad = true;
  config.filter = "tp_rank == 1";
  Dumper dumper(config);
  struct Waiting : test::FakePlugin {
    ParallelState collect_parallel_info() override {
      ::pthread_testcancel();
      return ParallelState().set("tp", 1, 2);
    }
  };
  dumper.add_plugin(std::make_shared<Waiting>());
  const at::Tensor leaf = at::ones({3}).requires_grad_();
  std::atomic<int> returned{0};
  const auto run_cancelled = [](const std::function<void()>& body) {
    std::thread([&body] {
      const ParticipantScope bound(std::make_shared<const Participant>(0, 2));
      ::pthread_cancel(::pthread_self());
      body();
      ::pthread_testcancel();
    }).join();
  };
  for (int i = 0; i < 3; ++i) {
    run_cancelled([&] {
      dumper.dump("x", leaf);
      const ContextScope scope(dumper, {{"i", i}});
      dumper.step();
      ++returned;
    });
  }
  EXPECT_EQ(returned, 3);
  run_cancelled([&] { leaf.sum().backward(); });
  // What is not dbg's may be cancelled, and the thread's own objects go as they should.
  run_cancelled([&] {
    const ContextScope scope(dumper, {{"scope", 1}});
    dumper.dump("callable", [&] {
      ::pthread_testcancel();
      return leaf;
    });
    ++returned;
  });
  dumper.set_interceptor([](const Interception&) { ::pthread_testcancel(); });
  run_cancelled([&] {
    dumper.dump("intercepted", leaf);
    ++returned;
  });
  EXPECT_EQ(returned, 3);
  const DumperCounters counters = dumper.state().counters;
  EXPECT_EQ(counters.written, 6u) << "three values, and the gradient of each";
  EXPECT_EQ(counters.failed, 0u);
}

TEST(CancelledThreadTest, GoesAfterItsDumpAndTakesNothingWithIt) {
  if (test::kUnderAddressSanitizer) GTEST_SKIP() << "AddressSanitizer loses track of a cancelled thread's stack";
  const test::TempFolder folder;
  const auto results =
      test::spawn_ranks({.body = "dumps_while_about_to_be_cancelled", .argument = (folder.path() / "base").string()});
  test::expect_all_passed(results);
}

}  // namespace
}  // namespace dbg
