// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The grammar: Python's expressions, without what could loop, assign, or call other than the few functions of a filter.
#include "dump/filter_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/formatted.h"
#include "dump/filter_builder.h"
#include "dump/filter_error.h"
#include "dump/filter_lexer.h"

namespace dbg::filter {
namespace {

constexpr std::size_t kLongestText = std::size_t{16} << 10;  // bytes
constexpr int kDeepest = 100;                                // brackets, signs and `not` inside each other

using Operands = std::vector<NodeIndex>;

struct RefusedWord {
  std::string_view word;
  std::string_view reason;
};

constexpr RefusedWord kRefusedWords[] = {
    {"lambda", "'lambda' is not part of the language: write the condition itself"},
    {"for", "a comprehension is not part of the language: write the alternatives out, as in x in (1, 2)"},
    {"async", "a comprehension is not part of the language: write the alternatives out, as in x in (1, 2)"},
    {"await", "'await' is not part of the language"},
    {"yield", "'yield' is not part of the language"},
    {"import", "'import' is not part of the language: search, match and len are there"},
};

class Parser {
 public:
  Parser(std::string_view source, Program& program) : source_(source), builder_(program), lexer_(source) { advance(); }

  NodeIndex parse_all() {
    const NodeIndex root = parse_expression();
    if (is_sign(",")) {
      fail(token_.at, "a tuple without parentheses is true whatever is in it: join conditions by 'and' or 'or'");
    }
    if (token_.kind != Token::Kind::end) fail_at_token();
    return root;
  }

 private:
  // --- Tokens ---

  void advance() { token_ = lexer_.next(); }
  bool is_sign(std::string_view sign) const { return token_.kind == Token::Kind::sign && token_.words == sign; }
  bool is_word(std::string_view word) const { return token_.kind == Token::Kind::name && token_.words == word; }
  bool take_sign(std::string_view sign) { return is_sign(sign) ? advance(), true : false; }
  bool take_word(std::string_view word) { return is_word(word) ? advance(), true : false; }

  [[noreturn]] void fail(std::size_t at, std::string_view reason) const { fail_at(source_, at, reason); }

  // The token can't stand where it stands.
  [[noreturn]] void fail_at_token() const {
    switch (token_.kind) {
      case Token::Kind::end:
        fail(token_.at, "the expression ends too early");
      case Token::Kind::name:
        for (const auto& [word, reason] : kRefusedWords) {
          if (token_.words == word) fail(token_.at, reason);
        }
        fail(token_.at, formatted("'{}' can't stand here", token_.words));
      case Token::Kind::text:
        fail(token_.at, "a text can't stand here");
      default:
        fail(token_.at, formatted("'{}' can't stand here", token_.words));
    }
  }

  void close(std::string_view sign, std::size_t opened_at, std::string_view opened) {
    if (take_sign(sign)) return;
    if (token_.kind == Token::Kind::end) fail(opened_at, formatted("'{}' without its '{}'", opened, sign));
    fail_at_token();
  }

  // Counts what nests in each other: hostile text must not exhaust the stack.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kDeepest) parser_.fail(parser_.token_.at, formatted("nested deeper than {}", kDeepest));
    }
    ~Level() { --parser_.depth_; }

   private:
    Parser& parser_;
  };

  // --- Expressions, loosest first ---

  NodeIndex parse_expression() {
    const Level level(*this);
    const std::size_t at = token_.at;
    const NodeIndex value = parse_or();
    if (!take_word("if")) return value;
    const NodeIndex condition = parse_or();
    if (!take_word("else")) fail(token_.at, "'if' without its 'else'");
    const NodeIndex otherwise = parse_expression();
    return builder_.make(Operation::conditional, at, {condition, value, otherwise});
  }

  NodeIndex parse_or() {
    const std::size_t at = token_.at;
    Operands operands{parse_and()};
    while (take_word("or")) operands.push_back(parse_and());
    return operands.size() == 1 ? operands.front() : builder_.make(Operation::any_of, at, operands);
  }

  NodeIndex parse_and() {
    const std::size_t at = token_.at;
    Operands operands{parse_not()};
    while (take_word("and")) operands.push_back(parse_not());
    return operands.size() == 1 ? operands.front() : builder_.make(Operation::all_of, at, operands);
  }

  NodeIndex parse_not() {
    const std::size_t at = token_.at;
    if (!take_word("not")) return parse_comparison();
    const Level level(*this);
    return builder_.make(Operation::inverse, at, {parse_not()});
  }

  std::optional<Compare> take_compare() {
    static constexpr std::pair<std::string_view, Compare> kComparisons[] = {
        {"==", Compare::equal},      {"!=", Compare::not_equal}, {"<", Compare::less},
        {"<=", Compare::less_equal}, {">", Compare::greater},    {">=", Compare::greater_equal}};
    for (const auto& [sign, op] : kComparisons) {
      if (take_sign(sign)) return op;
    }
    if (take_word("in")) return Compare::in;
    if (take_word("is")) return take_word("not") ? Compare::is_not : Compare::is;
    if (is_word("not")) {
      const std::size_t at = token_.at;
      advance();
      if (!take_word("in")) fail(at, "'not' can't stand here, unless 'in' follows");
      return Compare::not_in;
    }
    return std::nullopt;
  }

  NodeIndex parse_comparison() {
    Operands operands{parse_sum()};
    std::vector<Compare> compares;
    std::size_t first_at = 0;
    while (true) {
      const std::size_t at = token_.at;
      const std::optional<Compare> op = take_compare();
      if (!op) break;
      if (compares.empty()) first_at = at;
      compares.push_back(*op);
      operands.push_back(parse_sum());
      const bool asks_identity = *op == Compare::is || *op == Compare::is_not;
      if (asks_identity && !builder_.is_singleton(operands.back()) &&
          !builder_.is_singleton(operands[operands.size() - 2])) {
        fail(at, formatted("'is' is for None, True and False only: compare by '{}'", *op == Compare::is ? "==" : "!="));
      }
    }
    return compares.empty() ? operands.front() : builder_.make_comparison(first_at, operands, compares);
  }

  NodeIndex parse_sum() {
    NodeIndex left = parse_product();
    while (is_sign("+") || is_sign("-")) {
      const Arithmetic op = is_sign("+") ? Arithmetic::add : Arithmetic::subtract;
      const std::size_t at = token_.at;
      advance();
      left = builder_.make_arithmetic(op, at, left, parse_product());
    }
    return left;
  }

  NodeIndex parse_product() {
    NodeIndex left = parse_signed();
    while (is_sign("*") || is_sign("//") || is_sign("%")) {
      const Arithmetic op = is_sign("*")    ? Arithmetic::multiply
                            : is_sign("//") ? Arithmetic::floor_divide
                                            : Arithmetic::modulo;
      const std::size_t at = token_.at;
      advance();
      if (op == Arithmetic::modulo && builder_.is_text(left)) {
        fail(at, "'%' on a text (formatting) is not part of the language: join texts by '+'");
      }
      left = builder_.make_arithmetic(op, at, left, parse_signed());
    }
    return left;
  }

  NodeIndex parse_signed() {
    const std::size_t at = token_.at;
    const bool is_minus = is_sign("-");
    if (!is_minus && !is_sign("+")) return parse_postfix();
    const Level level(*this);
    advance();
    return builder_.make(is_minus ? Operation::negation : Operation::plus, at, {parse_signed()});
  }

  // --- An atom and what hangs on it ---

  NodeIndex parse_postfix() {
    NodeIndex value = parse_atom();
    while (token_.kind == Token::Kind::sign) {
      const std::size_t at = token_.at;
      if (take_sign(".")) {
        value = parse_method(value);
      } else if (take_sign("[")) {
        value = parse_subscript(value, at);
      } else if (is_sign("(")) {
        fail(at, "only search(), match() and len() can be called");
      } else {
        break;
      }
    }
    return value;
  }

  NodeIndex parse_method(NodeIndex value) {
    const std::size_t at = token_.at;
    if (token_.kind != Token::Kind::name) fail_at_token();
    Operation operation = Operation::starts_with;
    if (is_word("endswith")) {
      operation = Operation::ends_with;
    } else if (is_word("contains")) {
      operation = Operation::contains;
    } else if (!is_word("startswith")) {
      fail(at, formatted("'.{}' is not part of the language: .startswith(), .endswith() and .contains() are",
                         token_.words));
    }
    const std::string_view method = token_.words;
    advance();
    if (!is_sign("(")) fail(at, formatted("'.{}' must be called", method));
    const Operands arguments = parse_arguments(method);
    if (arguments.size() != 1) {
      fail(at, formatted(".{}() takes one argument: cut the text by a slice, as in name[2:].startswith('a')", method));
    }
    return builder_.make(operation, at, {value, arguments.front()});
  }

  NodeIndex parse_subscript(NodeIndex value, std::size_t at) {
    if (builder_.is_match(value)) fail(at, "what search() and match() find has no parts here: only whether they find");
    const NodeIndex none = builder_.make_constant(at, Value());
    NodeIndex parts[3] = {none, none, none};
    int colons = 0;
    while (!is_sign("]")) {
      if (take_sign(":")) {
        if (++colons > 2) fail(at, "a slice has at most two ':'");
        continue;
      }
      if (is_sign(",")) fail(token_.at, "an index with ',' is not part of the language");
      if (token_.kind == Token::Kind::end) fail(at, "'[' without its ']'");
      if (parts[colons] != none) fail_at_token();
      parts[colons] = parse_expression();
    }
    if (colons == 0 && parts[0] == none) fail(at, "an index is missing");
    advance();
    if (colons == 0) return builder_.make(Operation::item, at, {value, parts[0]});
    return builder_.make(Operation::slice, at, {value, parts[0], parts[1], parts[2]});
  }

  Operands parse_arguments(std::string_view function) {
    const std::size_t at = token_.at;
    advance();
    Operands arguments;
    while (!is_sign(")")) {
      refuse_star();
      const std::size_t argument_at = token_.at;
      const bool is_name = token_.kind == Token::Kind::name;
      arguments.push_back(parse_argument(argument_at, is_name, function));
      if (!take_sign(",")) break;
    }
    close(")", at, "(");
    return arguments;
  }

  NodeIndex parse_argument(std::size_t at, bool is_name, std::string_view function) {
    // `flags=...`: the lexer would name the '=' only.
    if (is_name) {
      const std::string_view rest = source_.substr(at + token_.words.size());
      const std::size_t sign = rest.find_first_not_of(" \t");
      if (sign != std::string_view::npos && rest[sign] == '=' && rest.substr(sign, 2) != "==") {
        fail(at, formatted("{}() takes no argument by name (flags stand in the pattern, as (?i))", function));
      }
    }
    return parse_expression();
  }

  void refuse_star() const {
    if (is_sign("*")) fail(token_.at, "'*' (unpacking) is not part of the language: write the values out");
  }

  NodeIndex parse_atom() {
    const std::size_t at = token_.at;
    switch (token_.kind) {
      case Token::Kind::integer: {
        const Value value = Value::of(token_.integer);
        advance();
        return builder_.make_constant(at, value);
      }
      case Token::Kind::real: {
        const Value value = Value::of(token_.real);
        advance();
        return builder_.make_constant(at, value);
      }
      case Token::Kind::text:
        return parse_text();
      case Token::Kind::name:
        return parse_name();
      case Token::Kind::sign:
        if (is_sign("(")) return parse_parentheses();
        if (is_sign("[")) return parse_list();
        if (is_sign("{")) return parse_set();
        refuse_star();
        fail_at_token();
      case Token::Kind::end:
        fail_at_token();
    }
    fail_at_token();
  }

  // Texts side by side are one.
  NodeIndex parse_text() {
    const std::size_t at = token_.at;
    std::string text;
    last_text_ = {token_.text_at, token_.text_as_written};
    for (bool is_first = true; token_.kind == Token::Kind::text; is_first = false) {
      if (!is_first) last_text_.as_written = false;
      text += token_.text;
      advance();
    }
    return builder_.make_text(at, text);
  }

  NodeIndex parse_name() {
    const std::size_t at = token_.at;
    const std::string_view word = token_.words;
    if (word == "None" || word == "True" || word == "False") {
      advance();
      return builder_.make_constant(at, word == "None" ? Value() : Value::of(word == "True"));
    }
    if (is_keyword(word)) fail_at_token();
    advance();
    const bool is_called = is_sign("(");
    if (word == "search" || word == "match") {
      if (!is_called) fail(at, formatted("'{}' is a function: call it as {}(pattern, text)", word, word));
      return parse_search(at, word);
    }
    if (!is_called) return builder_.make_name(at, word);
    if (word != "len") fail(at, formatted("{}() is not part of the language: search(), match(), len() are", word));
    const Operands arguments = parse_arguments(word);
    if (arguments.size() != 1) fail(at, "len() takes one argument");
    return builder_.make(Operation::length, at, {arguments.front()});
  }

  NodeIndex parse_search(std::size_t at, std::string_view function) {
    const std::size_t open_at = token_.at;
    advance();
    last_text_ = {};
    const std::size_t pattern_at = token_.at;
    const bool is_one_text = token_.kind == Token::Kind::text;
    Operands arguments;
    std::optional<WrittenText> written;
    while (!is_sign(")")) {
      refuse_star();
      arguments.push_back(parse_argument(token_.at, token_.kind == Token::Kind::name, function));
      if (arguments.size() == 1 && is_one_text) written = last_text_;
      if (!take_sign(",")) break;
    }
    close(")", open_at, "(");
    if (arguments.size() != 2) {
      fail(at, formatted("{}() takes a pattern and a text (flags stand in the pattern, as (?i))", function));
    }
    const std::optional<std::string_view> pattern = builder_.text_of(arguments[0]);
    if (!pattern) {
      fail(pattern_at,
           formatted("the pattern of {}() must be a text, known before the run: test tags by 'in'", function));
    }
    try {
      return builder_.make_search(function == "search" ? Operation::search : Operation::match, at, *pattern,
                                  arguments[1]);
    } catch (const PatternError& error) {
      // Inside the text where that can be told, else at its beginning.
      const bool is_exact = written && written->as_written && written->at + error.at <= source_.size() &&
                            source_.substr(written->at, pattern->size()) == *pattern;
      fail(is_exact ? written->at + error.at : pattern_at, formatted("pattern: {}", error.what()));
    }
  }

  // Parses what is left of `( ... )`, `[ ... ]` or `{ ... }` behind the first expression.
  void parse_items(Operands& items, std::string_view closing) {
    while (take_sign(",")) {
      if (is_sign(closing)) return;
      refuse_star();
      items.push_back(parse_expression());
    }
  }

  NodeIndex parse_parentheses() {
    const std::size_t at = token_.at;
    advance();
    if (take_sign(")")) return builder_.make(Operation::tuple, at, {});
    refuse_star();
    Operands items{parse_expression()};
    const bool is_tuple = is_sign(",");
    parse_items(items, ")");
    close(")", at, "(");
    return is_tuple ? builder_.make(Operation::tuple, at, items) : items.front();
  }

  NodeIndex parse_list() {
    const std::size_t at = token_.at;
    advance();
    if (take_sign("]")) return builder_.make(Operation::list, at, {});
    refuse_star();
    Operands items{parse_expression()};
    parse_items(items, "]");
    close("]", at, "[");
    return builder_.make(Operation::list, at, items);
  }

  NodeIndex parse_set() {
    constexpr std::string_view kDict = "a dict is not part of the language: compare tags one by one";
    const std::size_t at = token_.at;
    advance();
    if (is_sign("}")) fail(at, kDict);
    refuse_star();
    Operands items{parse_expression()};
    if (is_sign(":")) fail(at, kDict);
    parse_items(items, "}");
    close("}", at, "{");
    return builder_.make(Operation::set, at, items);
  }

  struct WrittenText {
    std::size_t at = 0;
    bool as_written = false;
  };

  std::string_view source_;
  Builder builder_;
  Lexer lexer_;
  Token token_;
  int depth_ = 0;
  WrittenText last_text_;  // the text parsed last, for columns inside a pattern
};

}  // namespace

std::unique_ptr<const Program> parse_program(std::string_view text) {
  auto program = std::make_unique<Program>();
  program->source = text;
  if (text.size() > kLongestText) {
    fail_at(text, kLongestText, formatted("longer than {} bytes: keep what the run must know in tags", kLongestText));
  }
  Parser parser(program->source, *program);
  program->root = parser.parse_all();
  return program;
}

}  // namespace dbg::filter
