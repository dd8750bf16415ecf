// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Heat map, histograms and corners of two tensors.
#include "compare/picture.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "base/formatted.h"
#include "base/tensor_blocks.h"
#include "compare/number_walk.h"

namespace dbg::compare {
namespace {

constexpr std::int64_t kMostRows = 48;
constexpr std::int64_t kMostColumns = 96;
constexpr std::size_t kHistogramBins = 40;
constexpr std::int64_t kCornerRows = 4;
constexpr std::int64_t kCornerColumns = 6;

std::string label_of(const std::vector<std::string>& names, std::size_t begin, std::size_t end, std::int64_t size) {
  std::vector<std::string> shown(names.begin() + static_cast<std::ptrdiff_t>(begin),
                                 names.begin() + static_cast<std::ptrdiff_t>(end));
  return shown.empty() ? formatted("({})", size) : formatted("{} ({})", fmt::join(shown, " × "), size);
}

std::vector<std::string> names_of(std::int64_t dims, const std::vector<std::string>& labels) {
  if (static_cast<std::int64_t>(labels.size()) == dims) return labels;
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < dims; ++i) names.push_back(formatted("dim {}", i));
  return names;
}

std::vector<std::vector<std::string>> corner_of(const at::Tensor& tensor, std::int64_t rows, std::int64_t columns) {
  std::vector<std::vector<std::string>> corner(static_cast<std::size_t>(std::min(rows, kCornerRows)));
  const std::int64_t shown = std::min(columns, kCornerColumns);
  const auto item_bytes = static_cast<std::int64_t>(tensor.itemsize());
  base::TensorBlocks blocks(tensor, std::int64_t{1} << 12);
  while (blocks.next() && blocks.start() <= (static_cast<std::int64_t>(corner.size()) - 1) * columns + shown) {
    for (std::size_t row = 0; row < corner.size(); ++row) {
      for (std::int64_t column = static_cast<std::int64_t>(corner[row].size()); column < shown; ++column) {
        const std::int64_t at = static_cast<std::int64_t>(row) * columns + column - blocks.start();
        if (at < 0 || at >= blocks.elements()) break;
        corner[row].push_back(base::element_text(tensor.scalar_type(), blocks.data() + at * item_bytes));
      }
    }
  }
  return corner;
}

struct Bins {
  double low;
  double scale;

  void count(const double* values, std::size_t elements, std::vector<std::int64_t>& to) const {
    for (std::size_t i = 0; i < elements; ++i) {
      if (!std::isfinite(values[i])) continue;
      const double place = (values[i] - low) * scale;
      const auto last = static_cast<double>(kHistogramBins - 1);
      ++to[static_cast<std::size_t>(std::clamp(place, 0.0, last))];
    }
  }
};

}  // namespace

std::shared_ptr<const TensorPicture> draw(const at::Tensor& a, const at::Tensor& b, double low, double high,
                                          const std::vector<std::string>& labels) {
  if (a.numel() == 0 || base::number_kind(a.scalar_type()) == base::NumberKind::opaque) return nullptr;
  auto picture = std::make_shared<TensorPicture>();
  const std::int64_t columns = a.dim() == 0 ? 1 : a.size(-1);
  const std::int64_t rows = a.numel() / columns;
  picture->heat_rows = std::min(rows, kMostRows);
  picture->heat_columns = std::min(columns, kMostColumns);
  picture->heat.assign(static_cast<std::size_t>(picture->heat_rows * picture->heat_columns), 0);
  const std::vector<std::string> names = names_of(a.dim(), labels);
  const std::size_t leading = names.empty() ? 0 : names.size() - 1;
  picture->row_label = label_of(names, 0, leading, rows);
  picture->column_label = label_of(names, leading, names.size(), columns);
  const bool has_range = std::isfinite(low) && std::isfinite(high);
  picture->low = has_range ? low : 0;
  picture->high = has_range ? high : 0;
  const double width = picture->high - picture->low;
  const bool is_wide = width > 0 && std::isfinite(width);
  const Bins bins{picture->low, is_wide ? static_cast<double>(kHistogramBins) / width : 0};
  picture->baseline_histogram.assign(kHistogramBins, 0);
  picture->target_histogram.assign(kHistogramBins, 0);
  NumberWalk walk(a, b);
  while (walk.next()) {
    bins.count(walk.size_a(), walk.elements(), picture->baseline_histogram);
    bins.count(walk.size_b(), walk.elements(), picture->target_histogram);
    for (std::size_t i = 0; i < walk.elements(); ++i) {
      const std::int64_t at = walk.start() + static_cast<std::int64_t>(i);
      const std::int64_t row = (at / columns) * picture->heat_rows / rows;
      const std::int64_t column = (at % columns) * picture->heat_columns / columns;
      float& cell = picture->heat[static_cast<std::size_t>(row * picture->heat_columns + column)];
      const double distance = walk.distance()[i];
      const bool both_nan = walk.size_a()[i] != walk.size_a()[i] && walk.size_b()[i] != walk.size_b()[i];
      if (both_nan) continue;
      const double shown = distance == distance ? distance : std::numeric_limits<double>::infinity();
      cell = std::max(cell, static_cast<float>(shown));
    }
  }
  picture->baseline_corner = corner_of(a, rows, columns);
  picture->target_corner = corner_of(b, rows, columns);
  return picture;
}

}  // namespace dbg::compare
