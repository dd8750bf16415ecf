// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Finds the records that tell lengths, and reads them once.
#include "compare/sequence_lengths.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/formatted.h"
#include "dbg/dump_record.h"
#include "dbg/error.h"

namespace dbg::compare {
namespace {

constexpr std::string_view kStarts = "cu_seqlens_q";
constexpr std::array<std::string_view, 2> kLengthNames = {kStarts, "seq_lens"};  // the first that is there counts

std::vector<std::int64_t> read_lengths(const RecordFile& file) {
  const c10::IValue value = read_record(file.path).value;
  const auto is_readable = [&value] {
    if (!value.isTensor() || !value.toTensor().defined()) return false;
    const at::Tensor& tensor = value.toTensor();
    return tensor.dim() == 1 && tensor.layout() == at::kStrided && at::isIntegralType(tensor.scalar_type(), false);
  };
  if (!is_readable()) {
    throw ConfigError(
        formatted("'{}' should tell the lengths of packed sequences, and is no list of integers", file.path));
  }
  const at::Tensor numbers = value.toTensor().to(at::kLong).contiguous();
  const auto* first = numbers.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> lengths(first, first + numbers.numel());
  if (file.descriptor.name == kStarts && !lengths.empty()) {
    for (std::size_t i = 0; i + 1 < lengths.size(); ++i) lengths[i] = lengths[i + 1] - lengths[i];
    lengths.pop_back();
  }
  return lengths;
}

}  // namespace

bool needs_sequence_lengths(const Dims& dims, const ParallelState& place) {
  const auto context = place.find("cp");
  if (!context || context->size < 2) return false;
  return std::any_of(dims.dims().begin(), dims.dims().end(), [](const Dim& dim) {
    return dim.names == std::vector<std::string>{"t"} &&
           std::any_of(dim.shards.begin(), dim.shards.end(),
                       [](const DimShard& shard) { return shard.axis == "cp" && shard.is_zigzag; });
  });
}

bool tells_sequence_lengths(std::string_view name) {
  return std::find(kLengthNames.begin(), kLengthNames.end(), name) != kLengthNames.end();
}

// The rank's own records of the first name that the step has, or else all ranks'.
std::vector<const RecordFile*> SequenceLengths::tellers_of(std::int64_t step, int rank) const {
  for (const std::string_view name : kLengthNames) {
    std::vector<const RecordFile*> all;
    std::vector<const RecordFile*> own;
    for (const RecordFile& record : records_) {
      if (record.descriptor.name != name || record.descriptor.step != step) continue;
      all.push_back(&record);
      if (record.descriptor.rank == rank) own.push_back(&record);
    }
    if (!all.empty()) return own.empty() ? all : own;
  }
  return {};
}

std::vector<std::int64_t> SequenceLengths::of(std::int64_t step, int rank) const {
  const std::lock_guard lock(mutex_);
  const auto known = known_.find({step, rank});
  if (known != known_.end()) return known->second;
  const std::vector<const RecordFile*> tellers = tellers_of(step, rank);
  Lengths lengths;
  for (const RecordFile* teller : tellers) {
    Lengths told = read_lengths(*teller);
    if (teller != tellers.front() && told != lengths) {
      throw ConfigError(
          formatted("'{}' and '{}' tell different lengths of the packed sequences of step {}: [{}] and "
                    "[{}]; dump them once a step",
                    tellers.front()->path, teller->path, step, fmt::join(lengths, ", "), fmt::join(told, ", ")));
    }
    lengths = std::move(told);
  }
  return known_.emplace(std::pair(step, rank), std::move(lengths)).first->second;
}

}  // namespace dbg::compare
