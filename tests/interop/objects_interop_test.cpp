// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// dbg's ranks and torch.distributed's in one gloo group, either as rank 0.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"
#include "distributed/collectives.h"
#include "distributed/objects.h"
#include "distributed/p2p.h"
#include "distributed/tensor_dict.h"
#include "support/temp_folder.h"

namespace dbg::distributed {
namespace {

using testing::HasSubstr;

c10::IValue object_of(int rank) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("rank", rank);
  dict.insert("text", std::string(static_cast<std::size_t>(100 * rank), 'x') + "é");
  dict.insert("half", 0.5 + rank);
  dict.insert("none", c10::IValue());
  dict.insert("flag", true);
  c10::impl::GenericList list(c10::AnyType::get());
  list.push_back(1);
  list.push_back(2);
  list.push_back(c10::ivalue::Tuple::create({3, std::string("four")}));
  dict.insert("list", list);
  dict.insert("tensor", at::arange(rank + 1, at::kShort));
  return dict;
}

void expect_object_of(const c10::IValue& object, int rank) {
  ASSERT_TRUE(object.isGenericDict());
  const auto dict = object.toGenericDict();
  EXPECT_EQ(dict.size(), 7U);
  EXPECT_EQ(dict.at("rank").toInt(), rank);
  EXPECT_EQ(dict.at("text").toStringRef(), std::string(static_cast<std::size_t>(100 * rank), 'x') + "é");
  EXPECT_EQ(dict.at("half").toDouble(), 0.5 + rank);
  EXPECT_TRUE(dict.at("none").isNone());
  EXPECT_TRUE(dict.at("flag").toBool());
  EXPECT_EQ(dict.at("list").toListRef()[2].toTupleRef().elements()[1].toStringRef(), "four");
  EXPECT_TRUE(at::equal(dict.at("tensor").toTensor(), at::arange(rank + 1, at::kShort)));
}

TensorDict dict_of(int rank) {
  return {{"hidden", at::arange(6, at::kBFloat16).reshape({2, 3}) + rank},
          {"nothing", at::empty({0, 3})},
          {"step", rank},
          {"ids", at::arange(rank + 2)}};
}

void expect_dict_of(const TensorDict& got, int rank) {
  const TensorDict wanted = dict_of(rank);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(got[i].first, wanted[i].first);
    if (wanted[i].second.isInt()) {
      EXPECT_EQ(got[i].second.toInt(), wanted[i].second.toInt());
    } else {
      EXPECT_EQ(got[i].second.toTensor().scalar_type(), wanted[i].second.toTensor().scalar_type());
      EXPECT_TRUE(at::equal(got[i].second.toTensor(), wanted[i].second.toTensor())) << got[i].first;
    }
  }
}

// The store keys are those of `init_process_group`'s world: `default_pg`, `0/`, `cpu/`.
std::unique_ptr<GroupHalf> meet_python(const std::string& path, int rank) {
  c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::FileStore>(path, 2);
  for (const char* prefix : {"default_pg", "0/", "cpu/"}) {
    store = c10::make_intrusive<c10d::PrefixStore>(prefix, store);
  }
  const auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
  options->devices = {c10d::ProcessGroupGloo::createDeviceForInterface("lo")};
  auto half = std::make_unique<GroupHalf>();
  half->name = "world";
  half->label = "world:cpu";
  half->ranks = {0, 1};
  half->rank_in_group = rank;
  half->timeout = std::chrono::seconds(60);
  half->backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, 2, options);
  return half;
}

// SGLang's own, whose functions pass dicts on the other side; empty where it is not.
std::string twins_source() {
  const char* folder = std::getenv("DBG_TEST_SGLANG_DIR");
  if (folder == nullptr) return {};
  const std::string path = std::string(folder) + "/sglang/srt/distributed/parallel_state.py";
  return std::filesystem::exists(path) ? path : std::string();
}

class ObjectsInteropTest : public testing::TestWithParam<int> {};

TEST_P(ObjectsInteropTest, AllOperationsAgree) {
  const int rank = GetParam();
  const int other = 1 - rank;
  const test::TempFolder folder;
  const std::string path = (folder / "store").string();
  const char* python = std::getenv("DBG_TEST_PYTHON");
  const char* source_dir = std::getenv("DBG_TEST_SOURCE_DIR");
  const std::string twin = twins_source();
  const std::string command =
      formatted("DBG_TEST_CPP_RANK={} DBG_TEST_TWIN='{}' '{}' '{}/tests/interop/objects_peer.py' '{}' {} 2 2>&1", rank,
                twin, python != nullptr ? python : "python3", source_dir != nullptr ? source_dir : ".", path, other);
  FILE* peer = ::popen(command.c_str(), "r");
  ASSERT_NE(peer, nullptr);
  // Read on a thread of its own, so that the peer never waits for a full pipe.
  std::string output;
  std::thread reader([&] {
    char bytes[4096];
    for (std::size_t got = 0; (got = std::fread(bytes, 1, sizeof bytes, peer)) > 0;) output.append(bytes, got);
  });
  try {
    const auto half = meet_python(path, rank);

    at::Tensor tensor = at::arange(4, at::kFloat) + rank;
    all_reduce(*half, tensor);
    EXPECT_TRUE(at::equal(tensor, at::arange(4, at::kFloat) * 2 + 1));
    EXPECT_TRUE(at::equal(all_gather(*half, at::full({2}, rank, at::kLong)), at::tensor({0, 0, 1, 1}, at::kLong)));
    tensor = at::full({3}, static_cast<float>(rank));
    broadcast(*half, tensor, 1);
    EXPECT_TRUE(at::equal(tensor, at::ones({3})));
    barrier(*half);
    if (rank == 0) {
      send(*half, at::full({3}, 7.0F), other, 4);
    } else {
      recv(*half, tensor, other, 4);
      EXPECT_TRUE(at::equal(tensor, at::full({3}, 7.0F)));
    }

    for (int src = 0; src < 2; ++src) expect_object_of(broadcast_object(*half, object_of(rank), src), src);
    const auto objects = all_gather_object(*half, object_of(rank));
    for (int i = 0; i < 2; ++i) expect_object_of(objects.at(static_cast<std::size_t>(i)), i);
    for (int dst = 0; dst < 2; ++dst) {
      const auto gathered = gather_object(*half, object_of(rank), dst);
      ASSERT_EQ(gathered.size(), rank == dst ? 2U : 0U);
      for (std::size_t i = 0; i < gathered.size(); ++i) expect_object_of(gathered[i], static_cast<int>(i));
    }
    if (rank == 0) {
      send_object(*half, object_of(0), 1);
      expect_object_of(recv_object(*half, 1), 1);
    } else {
      expect_object_of(recv_object(*half, 0), 0);
      send_object(*half, object_of(1), 0);
    }

    if (!twin.empty()) {
      const GroupPair group{*half, *half};
      for (int src = 0; src < 2; ++src) {
        expect_dict_of(broadcast_tensor_dict(group, rank == src ? dict_of(src) : TensorDict(), src), src);
      }
      if (rank == 0) {
        send_tensor_dict(group, dict_of(0));
        expect_dict_of(recv_tensor_dict(group, 1), 1);
      } else {
        expect_dict_of(recv_tensor_dict(group), 0);
        send_tensor_dict(group, dict_of(1), 0);
      }
    }

    try {
      broadcast_object(*half, c10::IValue(), other);
      ADD_FAILURE() << "a set became a value";
    } catch (const CommError& error) {
      EXPECT_EQ(error.kind(), CommErrorKind::unsupported);
      EXPECT_THAT(error.what(), HasSubstr("a set at value['a set']"));
    }
    barrier(*half);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  reader.join();
  const int status = ::pclose(peer);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << output;
  if (twin.empty()) GTEST_SKIP() << "no dicts were passed: SGLang's parallel_state.py is not there";
}

INSTANTIATE_TEST_SUITE_P(Ranks, ObjectsInteropTest, testing::Values(0, 1),
                         [](const testing::TestParamInfo<int>& rank) { return formatted("dbg_is_{}", rank.param); });

}  // namespace
}  // namespace dbg::distributed
