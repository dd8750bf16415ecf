// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The page as text: one file, nothing loaded, nothing of a record as markup. A browser is asked by report_page_test.py.
#include "compare/report_html.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compare/run_folder.h"

namespace dbg::compare {
namespace {

using test::compare_runs;
using test::RunFolder;
using testing::HasSubstr;
using testing::Not;

std::string data_of(const std::string& page) {
  const std::string begin = "<script id=\"data\" type=\"application/json\">";
  const std::size_t at = page.find(begin) + begin.size();
  return page.substr(at, page.find("</script>", at) - at);
}

TEST(ReportHtmlTest, DataIsJsonWithoutMarkup) {
  RunFolder baseline;
  RunFolder target;
  const std::string name = "<script>alert(1)</script> & </script>\xe2\x80\xa8";
  baseline.add(name, at::ones({8, 8}));
  target.add(name, at::ones({8, 8}) * 2);
  const auto pictured = [](CompareOptions& options) { options.max_pictures = 1; };
  const std::string page = report_html(compare_runs(baseline, target, pictured));
  const std::string data = data_of(page);
  EXPECT_THAT(data, Not(HasSubstr("<")));
  const auto json = nlohmann::json::parse(data);
  EXPECT_EQ(json.at("pairs")[0].at("name"), name);
  EXPECT_EQ(json.at("pairs")[0].at("picture").at("heat").at("cells").get<std::string>().size(), 64U);
  EXPECT_EQ(json.at("first_jump").at("pair"), 0);
}

TEST(ReportHtmlTest, ThePageLoadsNothingAndIsOneDocument) {
  const std::string page(page_template());
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* loader : {"src=", "href=", "@import", "url(", "fetch(", "innerHTML", "document.write", "eval("}) {
    EXPECT_THAT(page, Not(HasSubstr(loader))) << loader;
  }
  EXPECT_EQ(page.find("@DATA@"), page.rfind("@DATA@"));
}

TEST(ReportHtmlTest, LineSeparatorsAndMarkupAreEscapedForScripts) {
  EXPECT_EQ(json_for_script("\"<a>&\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xa6\""),
            "\"\\u003ca\\u003e\\u0026\\u2028\\u2029\xe2\x80\xa6\"");
}

}  // namespace
}  // namespace dbg::compare
