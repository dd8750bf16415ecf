// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// C++ ranks for graft_interop_test.py: does what graft_peer.py does, in the same order, as one rank or, with
// GRAFT_PEER_THREADS, as several threads. Prints what it saw as JSON, a line each.
#include <ATen/ATen.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dbg/config.h"
#include "dbg/dumper.h"
#include "dbg/error.h"
#include "dbg/grafter.h"
#include "dbg/participant.h"

namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

void say(const json& what) {
  static std::mutex mutex;
  const std::string line = what.dump() + "\n";
  const std::lock_guard lock(mutex);
  std::cout << line << std::flush;
}

// ---- The tensors of graft_peer.py.

struct Rank {
  dbg::Dumper& dumper;
  dbg::Grafter& grafter;
  bool is_baseline;

  int number() const { return dbg::current_participant()->rank(); }
  // Differs between any two ranks of both sides.
  int salt() const { return (is_baseline ? 1 : 50) + number(); }
  bool sends(const std::string& direction) const { return is_baseline == (direction == "b2t"); }
};

at::ScalarType dtype_named(const std::string& name) {
  static const std::map<std::string, at::ScalarType> known{{"float32", at::kFloat},
                                                           {"float64", at::kDouble},
                                                           {"bfloat16", at::kBFloat16},
                                                           {"float16", at::kHalf},
                                                           {"float8_e4m3fn", at::kFloat8_e4m3fn},
                                                           {"float8_e5m2", at::kFloat8_e5m2},
                                                           {"float8_e4m3fnuz", at::kFloat8_e4m3fnuz},
                                                           {"float8_e5m2fnuz", at::kFloat8_e5m2fnuz},
                                                           {"float8_e8m0fnu", at::kFloat8_e8m0fnu},
                                                           {"int8", at::kChar},
                                                           {"int16", at::kShort},
                                                           {"int32", at::kInt},
                                                           {"int64", at::kLong},
                                                           {"uint8", at::kByte},
                                                           {"uint16", at::kUInt16},
                                                           {"uint32", at::kUInt32},
                                                           {"uint64", at::kUInt64},
                                                           {"bool", at::kBool},
                                                           {"complex32", at::kComplexHalf},
                                                           {"complex64", at::kComplexFloat},
                                                           {"complex128", at::kComplexDouble}};
  return known.at(name);
}

// Bytes below 120 in place of random ones: finite in every dtype, and not the same for another salt.
at::Tensor filled(at::ScalarType dtype, std::vector<std::int64_t> shape, int of) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  const auto width = static_cast<std::int64_t>(c10::elementSize(dtype));
  const at::Tensor pattern = at::arange(count * width, at::kLong).mul(37).add(of * 11).remainder(120).to(at::kByte);
  if (dtype == at::kBool) return pattern.div(3, "floor").remainder(2).eq(1).reshape(shape);
  return pattern.view(dtype).reshape(shape);
}

at::Tensor make_form(const std::string& form, int of, bool is_sender) {
  const at::Tensor plain = filled(at::kFloat, {4, 6}, of);
  if (form == "scalar") return plain[1][2].clone();
  if (form == "empty") return at::empty({0, 3});
  if (form == "transposed") return plain.t();
  if (form == "view") return plain.slice(0, 1, 3).slice(1, 2, 4);
  // C++ has no class of parameters: one is a leaf.
  if (form == "parameter" || form == "leaf") return plain.set_requires_grad(true);
  if (form == "computed") return plain.set_requires_grad(true) * 1;
  const at::Tensor expanded = plain.slice(0, 0, 1).expand({4, 6});
  if (form == "into_expanded") return is_sender ? plain : expanded;
  if (form == "from_expanded") return is_sender ? expanded : plain;
  if (form == "from_conjugate" || form == "from_negative") {
    const at::Tensor conjugate = filled(at::kComplexFloat, {4, 6}, of).conj();
    const at::Tensor lazy = form == "from_conjugate" ? conjugate : at::imag(conjugate);
    return is_sender ? lazy : lazy.clone().resolve_conj().resolve_neg();
  }
  if (form == "large") return filled(at::kFloat, {3, 1 << 20}, of);
  return filled(dtype_named(form), {2, 3}, of);
}

c10::IValue text_dict(const std::vector<std::pair<std::string, c10::IValue>>& items) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  for (const auto& [key, value] : items) dict.insert(key, value);
  return dict;
}

c10::IValue make_extras() {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const c10::IValue& one : {c10::IValue(1), c10::IValue(2.5), c10::IValue(true), c10::IValue("x")}) {
    list.push_back(one);
  }
  const c10::IValue nested = text_dict({{"pair", c10::ivalue::Tuple::create({c10::IValue(1), c10::IValue("two")})}});
  return text_dict({{"shard", 3}, {"half", 0.5}, {"text", "\u00e9"}, {"none", {}}, {"list", list}, {"nested", nested}});
}

json as_json(const c10::IValue& value) {
  if (value.isNone()) return nullptr;
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return value.toDouble();
  if (value.isString()) return value.toStringRef();
  json out;
  if (value.isGenericDict()) {
    for (const auto& item : value.toGenericDict()) out[item.key().toStringRef()] = as_json(item.value());
  } else if (value.isTuple()) {
    for (const c10::IValue& one : value.toTupleRef().elements()) out.push_back(as_json(one));
  } else if (value.isList()) {
    for (const c10::IValue& one : value.toListRef()) out.push_back(as_json(one));
  } else {
    out = value.tagKind();
  }
  return out;
}

// Of many senders the mean of this rank's part of them, of few the one whose part this rank holds.
at::Tensor average_or_spread(const dbg::GraftInput& input) {
  json firsts = json::array();
  for (const at::Tensor& one : input.received) firsts.push_back(one.flatten()[0].item<double>());
  json extras = json::array();
  for (const c10::IValue& one : input.received_extras) extras.push_back(as_json(one));
  say({{"transform", dbg::python_text(input.tags.find("name")->view())}, {"firsts", firsts}, {"extras", extras}});
  const std::size_t rank = static_cast<std::size_t>(input.receiver_rank);
  const std::size_t receivers = static_cast<std::size_t>(input.receiver_count);
  if (input.received.size() < receivers) return input.received[rank * input.received.size() / receivers];
  const std::size_t part = input.received.size() / receivers;
  const auto first = input.received.begin() + static_cast<std::ptrdiff_t>(part * rank);
  return at::stack(std::vector<at::Tensor>(first, first + static_cast<std::ptrdiff_t>(part))).mean(0);
}

// ---- What is done.

const Words kDirections{"b2t", "t2b"};

void run_forms(Rank& rank, const Words& forms) {
  for (const std::string& form : forms) {
    for (const std::string& direction : kDirections) {
      rank.dumper.dump(direction + "_" + form, make_form(form, rank.salt(), rank.sends(direction)));
    }
  }
  rank.dumper.step();
}

void run_counts(Rank& rank, const Words&) {
  const c10::IValue extras = make_extras();
  for (const std::string& direction : kDirections) {
    dbg::DumpOptions options;
    if (rank.number() % 2 == 0) options.grafter_extras = &extras;
    rank.dumper.dump(direction + "_counts", at::full({2, 3}, double(rank.salt())), {}, options);
  }
  rank.dumper.step();
}

// A fault of the receiver's, and a graft that works after it.
void run_unlike(Rank& rank, const Words&) {
  for (const std::string& direction : kDirections) {
    rank.dumper.dump(direction + "_unlike", at::full({rank.is_baseline ? 3 : 4}, double(rank.salt())));
    rank.dumper.dump(direction + "_alike", at::full({5}, double(rank.salt())));
  }
  rank.dumper.step();
}

// Values in place of a tensor, and a graft that works after each.
void run_nothing(Rank& rank, const Words&) {
  const std::vector<c10::IValue> nothings{at::Tensor(), at::eye(5).to_sparse(), "text"};
  for (std::size_t i = 0; i < nothings.size(); ++i) {
    const std::string number = std::to_string(i);
    for (const std::string& direction : kDirections) {
      rank.dumper.dump(direction + "_nothing" + number, nothings[i]);
      rank.dumper.dump(direction + "_alike" + number, at::full({5}, double(rank.salt()) + double(i), at::kFloat));
    }
  }
  rank.dumper.step();
}

// The other half of the twin's: one tensor more than it has.
void run_text(Rank& rank, const Words&) {
  rank.dumper.dump("b2t_text", at::full({5}, double(rank.salt()), at::kFloat));
  for (int number = 0; number < 2; ++number) {
    const at::Tensor value = at::full({5}, double(rank.salt()), at::kFloat);
    rank.dumper.dump("b2t_next", value);
    say({{"holds", std::vector<float>(value.data_ptr<float>(), value.data_ptr<float>() + 5)}});
  }
  rank.dumper.step();
}

void graft_step(Rank& rank, int step) {
  for (const std::string& direction : kDirections) {
    rank.dumper.dump(direction + "_step", at::full({1 << 20}, double(rank.salt() + step), at::kFloat));
  }
  rank.dumper.step();
  say({{"step", step}});
}

// So many grafts of 4 MiB.
void run_steps(Rank& rank, const Words& words) {
  for (int step = 0; step < std::stoi(words.at(0)); ++step) graft_step(rank, step);
}

// The same until a peer is gone; then the run goes on by a step of its own.
void run_until_the_peer_is_gone(Rank& rank, const Words&) {
  int step = 0;
  auto began = std::chrono::steady_clock::now();
  for (; step < 100000 && rank.grafter.state().phase != dbg::GraftPhase::off; ++step) {
    began = std::chrono::steady_clock::now();
    graft_step(rank, step);
  }
  say({{"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()}});
  graft_step(rank, step);
}

// The other half of the raw ranks of graft_peer.py: says what a tensor of this rank holds after each call.
void run_receive(Rank& rank, const Words& words) {
  for (int call = 0; call < std::stoi(words.at(1)); ++call) {
    at::Tensor value = at::full({4}, double(rank.salt()));
    rank.dumper.dump(words.at(0) + "_raw", value);
    say({{"holds", std::vector<float>(value.data_ptr<float>(), value.data_ptr<float>() + 4)}});
  }
}

void say_state(const dbg::Grafter& grafter) {
  const dbg::GraftState state = grafter.state();
  const dbg::GraftCounters& counted = state.counters;
  say({{"phase", state.phase == dbg::GraftPhase::off        ? "off"
                 : state.phase == dbg::GraftPhase::grafting ? "grafting"
                                                            : "waiting"},
       {"cause", state.cause},
       {"peers", state.peers},
       {"label", state.label},
       {"sent", counted.sent},
       {"grafted", counted.grafted},
       {"failed", counted.failed},
       {"refused", counted.refused},
       {"empty", counted.empty},
       {"off", counted.off}});
}

void run(Rank& rank, const Words& words) {
  static const std::map<std::string, void (*)(Rank&, const Words&)> known{
      {"forms", run_forms},
      {"counts", run_counts},
      {"unlike", run_unlike},
      {"nothing", run_nothing},
      {"text", run_text},
      {"steps", run_steps},
      {"until_the_peer_is_gone", run_until_the_peer_is_gone},
      {"receive", run_receive}};
  known.at(words.at(0))(rank, Words(words.begin() + 1, words.end()));
  say_state(rank.grafter);
}

void run_threads(Rank& rank, const Words& words, int count) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&rank, &words, i, count] {
      const dbg::ParticipantScope scope(std::make_shared<dbg::Participant>(i, count));
      run(rank, words);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Words words(argv + 1, argv + argc);
    const auto handle = dbg::register_graft_transform("average_or_spread", average_or_spread);
    const dbg::DumperConfig config = dbg::DumperConfig::from_env();
    dbg::Dumper dumper(config);
    dbg::Grafter grafter(dbg::GraftConfig::from(config));
    dumper.set_interceptor(grafter.interceptor());
    Rank rank{dumper, grafter, config.grafter_role == "baseline"};
    if (const char* threads = std::getenv("GRAFT_PEER_THREADS")) {
      run_threads(rank, words, std::stoi(threads));
    } else {
      run(rank, words);
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
