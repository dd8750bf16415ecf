// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// dump_model: every parameter of a model once, under its name in the whole model.
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "dbg/model_walk.h"
#include "dump/dumper_impl.h"

namespace dbg::detail {
namespace {

// One walk's parameters under the path that its module was given.
struct NamedWalk {
  ModelInfo info;
  std::vector<NamedParameter> parameters;
};

// The walks of a model and its extra modules. A tensor met in an earlier walk is not repeated in a later one; names
// that are tied within one walk all stay.
// `on_fault` is called inside a catch block with what could not be walked; the other walks go on.
std::vector<NamedWalk> walk_all(const ModelView& model, const DumpModelOptions& options,
                                const std::function<void(const std::string& what)>& on_fault) {
  std::vector<NamedWalk> walks;
  std::unordered_set<const void*> earlier;
  const auto add = [&](WalkedModel walked, const std::string& path) {
    NamedWalk walk;
    walk.info.type_name = std::move(walked.type_name);
    walk.info.prefix = path;
    walk.info.model_chunk = options.model_chunk;
    for (NamedParameter& parameter : walked.parameters) {
      // Undefined tensors all share one impl, and are not one parameter for that.
      if (parameter.tensor.defined() && earlier.contains(parameter.tensor.unsafeGetTensorImpl())) continue;
      std::string name = path.empty() ? std::move(parameter.name) : path + "." + parameter.name;
      walk.info.parameter_names.push_back(name);
      walk.parameters.push_back({std::move(name), std::move(parameter.tensor)});
    }
    for (const NamedParameter& parameter : walk.parameters) earlier.insert(parameter.tensor.unsafeGetTensorImpl());
    walks.push_back(std::move(walk));
  };
  const auto walk_one = [&](const ModelView& view, const std::string& path) {
    const std::string what = path.empty() ? "the model" : "the extra module " + path;
    try {
      WalkedModel walked = view.walk();
      if (walked.is_null) {
        base::log(LogLevel::warning, "Dumper", "dump_model: {} is a null pointer; it is left out", what);
        return;
      }
      add(std::move(walked), path);
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (...) {
      on_fault(what);
    }
  };
  walk_one(model, "");
  for (const ExtraModule& extra : options.extra_modules) walk_one(extra.view(), extra.path());
  return walks;
}

}  // namespace

std::string readable_type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return status == 0 && readable != nullptr ? readable.get() : type.name();
}

DumpModelReport DumperImpl::dump_model(const ModelView& model, const DumpModelOptions& options) {
  DumpModelReport report;
  if (refuse_in_forked_child()) return report;
  const auto now = settings();
  if (!now->config.enable) return report;
  try {
    dump_parameters(*now, model, options, report);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    if (now->config.strict) throw;  // counted already
    count(DumpOutcome::failed);
    record_fault(*now, FaultPlace::walk, "the model");
  }
  return report;
}

void DumperImpl::dump_parameters(const Settings& settings, const ModelView& model, const DumpModelOptions& options,
                                 DumpModelReport& report) {
  const std::vector<NamedWalk> walks = walk_all(model, options, [&](const std::string& what) {
    count(DumpOutcome::failed);
    record_fault(settings, FaultPlace::walk, what);
  });

  std::vector<TagRef> tags;
  tags.reserve(options.tags.size());
  for (const auto& [key, value] : options.tags) tags.emplace_back(key, value.view());

  for (const NamedWalk& walk : walks) {
    for (const NamedParameter& parameter : walk.parameters) {
      ++report.seen;
      DumpModelReport own;  // of this parameter: a fault may leave it half done
      try {
        const std::string child = parameter.name.substr(0, parameter.name.find('.'));
        if (std::find(report.children.begin(), report.children.end(), child) == report.children.end()) {
          report.children.push_back(child);
        }
        const std::string renamed =
            settings.plugins->transform_model_param_name(walk.info, parameter.name, plugin_faults(settings));
        const std::string name = options.name_prefix + "__" + renamed;
        DumpRequest request;
        request.name = name;
        request.save = options.save;
        request.want_value = settings.config.enable_model_value;
        request.want_current_grad = settings.config.enable_model_grad;
        request.kind = RecordKind::parameter;
        if (renamed != parameter.name) request.local_name = parameter.name;
        request.report = &own;
        dump_value(settings, request, LazyValue::of(parameter.tensor), tags);
      } catch (const abi::__forced_unwind&) {
        throw;
      } catch (...) {
        count(DumpOutcome::failed);
        if (settings.config.enable_model_value && own.written + own.failed == 0) ++own.failed;
        if (settings.config.enable_model_grad && own.grads_written + own.grads_failed + own.without_grad == 0) {
          ++own.grads_failed;
        }
        record_fault(settings, FaultPlace::parameter, parameter.name);
      }
      report.written += own.written;
      report.grads_written += own.grads_written;
      report.filtered += own.filtered;
      report.failed += own.failed;
      report.grads_failed += own.grads_failed;
      report.without_grad += own.without_grad;
    }
  }
}

}  // namespace dbg::detail
