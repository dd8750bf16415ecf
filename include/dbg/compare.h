// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where two runs part: compares two folders of records, pair by pair, and names the first that differs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dbg/export.h"
#include "dbg/tensor_info.h"

namespace dbg {

/// What to compare and by which measure.
struct CompareOptions {
  /// The trusted run's folder and the suspect's. A folder that holds no records but one folder that does stands for it.
  std::string baseline = {};
  std::string target = {};

  /// `target-regex => baseline-replacement`: how the target's engine's names become the baseline's. The first that is
  /// found in a name counts.
  std::vector<std::string> name_maps = {};
  /// Tags that need not be equal.
  std::vector<std::string> ignored_tags = {};
  /// The baseline's step of the target's step s is s + step_offset.
  std::int64_t step_offset = 0;
  /// An expression of the filter language over name, step, rank and tags: which records of both sides are looked at.
  std::string where = {};

  /// `regex: rel <= 1e-3 or max_abs <= 1e-5`: the tolerance of the names in which the regex is found; the first counts.
  std::vector<std::string> rules = {};
  /// A file of such lines, see `docs/compare.md`; what stands above comes first.
  std::string rules_file = {};

  /// A second trusted run. A pair that it has is judged by it: passed while its error is at most `noise_factor` times
  /// that of the noise against the baseline, or of one rounding.
  std::string noise = {};
  double noise_factor = 3;

  /// Whether records without a partner make the comparison fail.
  bool unpaired_fails = true;
  /// Of so many failed pairs a picture is kept (heat map, histograms, corners).
  std::size_t max_pictures = 0;
  /// Threads; 0: as many as the machine has cores.
  unsigned threads = 0;
  /// Called by one thread at a time, now and then, with the pairs done and all; first with 0.
  std::function<void(std::size_t done, std::size_t all)> on_progress = {};
};

/// What became of a pair.
enum class Verdict : std::uint8_t {
  same_bits,
  passed,   ///< other bits, within tolerance
  failed,   ///< beyond tolerance, of another shape, or with replicas that disagree
  skipped,  ///< not compared; `reason` says why
};

/// `same bits`, `passed`, `failed`, `skipped`.
DBG_API const char* to_text(Verdict verdict) noexcept;

/// Percentiles 0, 1, 5, 50, 95, 99 and 100 of the numbers that are no NaN, interpolated as NumPy does; NaN where there
/// is none. Of a complex tensor, those of its absolute values.
using Percentiles = std::array<double, 7>;
inline constexpr std::array<int, 7> kPercentiles = {0, 1, 5, 50, 95, 99, 100};

/// What the two tensors look like after both were cast to the coarser of their dtypes.
struct CastDifference {
  std::string dtype;
  std::int64_t differing = 0;
  double rel_diff = 0;
  double max_abs = 0;
};

/// Two ranks that should hold the same and don't.
struct OddReplica {
  std::string side;  ///< `baseline` or `target`
  std::string axis;  ///< over which they are replicas: `tp`, `pp`, or `rank` where nothing is known of them
  int reference_rank = 0;
  int odd_rank = 0;
  TensorDiff difference;  ///< `a` is the reference
};

/// What a page shows of a failed pair.
struct TensorPicture {
  /// The largest |difference| in each cell of the tensor as a matrix (its last dimension is the columns), row by row.
  std::vector<float> heat;
  std::int64_t heat_rows = 0;
  std::int64_t heat_columns = 0;
  std::string row_label;  ///< `b*s (512)`
  std::string column_label;
  double low = 0;  ///< of both histograms
  double high = 0;
  std::vector<std::int64_t> baseline_histogram;
  std::vector<std::int64_t> target_histogram;
  /// The first rows' first values, each side's, as text.
  std::vector<std::vector<std::string>> baseline_corner;
  std::vector<std::vector<std::string>> target_corner;
};

/// One pair of tensors (or other values) and how they differ.
struct PairReport {
  std::string name;         ///< as the baseline calls it
  std::string target_name;  ///< as the target calls it
  std::string part;         ///< where in a list, tuple or dict the tensor stood: `[0]['k']`
  std::string tags;         ///< the baseline's, as text: `layer_id=3`
  std::int64_t step = 0;    ///< the baseline's
  std::int64_t target_step = 0;
  std::vector<int> baseline_ranks;
  std::vector<int> target_ranks;
  std::vector<std::string> baseline_files;
  std::vector<std::string> target_files;
  std::string dims;  ///< of the baseline, where known

  Verdict verdict = Verdict::skipped;
  std::string reason;     ///< in words, for all but `same bits`
  std::string tolerance;  ///< what it was held against
  std::string note;       ///< what was done before comparing, where that is not plain
  /// Whether it was skipped since something is wrong with its files or with what is said of them.
  bool is_fault = false;

  TensorDiff difference;
  double cosine = std::numeric_limits<double>::quiet_NaN();
  /// Of the elements, those with |x-y| > atol + rtol*|x|; atol and rtol by dtype (docs/compare.md).
  double outside_fraction = std::numeric_limits<double>::quiet_NaN();
  std::optional<Percentiles> baseline_percentiles;
  std::optional<Percentiles> target_percentiles;
  std::optional<Percentiles> difference_percentiles;  ///< of |x-y|
  std::optional<CastDifference> cast;

  /// Length of the difference over the length of the tensors, about: sqrt(2*rel_diff).
  double error = std::numeric_limits<double>::quiet_NaN();
  /// `error` over the largest error before it in the run (over one rounding, or the noise, where that is larger).
  double growth = 0;
  /// The error of the second trusted run, where there is one.
  std::optional<double> noise_error;
  bool is_below_noise = false;

  std::vector<OddReplica> odd_replicas;
  std::shared_ptr<const TensorPicture> picture;
};

/// A place in the order of dumping.
struct Landmark {
  std::size_t pair = 0;
  std::optional<std::size_t> last_good;  ///< the pair before it that was still right
};

/// The headline: where the target parts from the baseline, in the baseline's order of dumping.
struct Divergence {
  std::optional<Landmark> first_bits;    ///< the first pair that is not the same bits
  std::optional<Landmark> first_beyond;  ///< the first that failed
  std::optional<Landmark> first_jump;    ///< the first whose error is more than five times any before it
};

struct StepReport {
  std::int64_t step = 0;
  std::size_t pairs = 0;
  std::size_t same_bits = 0;
  std::size_t passed = 0;
  std::size_t failed = 0;
  std::size_t skipped = 0;
  Divergence divergence;  ///< within the step, as if it were the only one
};

/// Records of one side that found no partner.
struct UnpairedReport {
  std::string side;
  std::string name;
  std::string tags;
  std::int64_t step = 0;
  std::vector<int> ranks;
  std::string reason;
  std::string nearest_name;  ///< on the other side; empty when there is none
};

struct UnreadableReport {
  std::string path;
  std::string cause;
};

/// What `compare_folders` found.
struct CompareReport {
  std::string baseline;
  std::string target;
  std::string noise;
  std::size_t baseline_records = 0;
  std::size_t target_records = 0;
  std::vector<PairReport> pairs;  ///< in the order in which the baseline dumped them
  std::vector<UnpairedReport> unpaired;
  std::vector<UnreadableReport> unreadable;
  std::vector<std::string> notes;
  Divergence divergence;
  std::vector<StepReport> steps;
  bool unpaired_fails = true;
  double seconds = 0;

  /// How many pairs have this verdict.
  DBG_API std::size_t count(Verdict verdict) const noexcept;
  /// 0 when all passed, 1 when something failed, 2 when something could not be compared.
  DBG_API int exit_code() const noexcept;
};

/// Compares two folders of records, written by dbg or by its Python twin.
///
/// Records of several ranks become one tensor where dims (of the meta, or of the rules file) says how; without dims
/// they are compared rank by rank. A value that is a list, tuple or dict is compared part by part. Threads: safe to
/// call from any thread; works on several of its own. Units: holds a few records at a time; one of more than 64 MiB
/// that needs no putting together is read in pieces. Throws: ConfigError for an option, rule or rules file that is
/// none, and when a folder holds no records; IoError when a folder or the rules file can't be read. A record that can't
/// be read is a line of the report.
DBG_API CompareReport compare_folders(const CompareOptions& options);

}  // namespace dbg
