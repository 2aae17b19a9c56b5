// SPDX-License-Identifier: MIT
#include "jit/rule_file.h"

#include <fmt/format.h>

#include <mutex>
#include <sstream>
#include <utility>

#include "cpu/isa.h"
#include "gallop/error.h"
#include "isa_list.gen.h"
#include "jit/library.h"

namespace gallop::jit {
namespace {

std::vector<std::string> library_flags(std::string_view more) {
  std::vector<std::string> out = {"-std=c++20",          "-shared", "-fPIC",
                                  "-fvisibility=hidden", "-w",      "-fdiagnostics-color=never"};
  std::istringstream words{std::string(more)};
  for (std::string word; words >> word;) out.push_back(word);
  return out;
}

// What the file's own functions are compiled to, without any instruction set's flags.
RuleData describe(const RuleText& rule) {
  Unit unit(rule);
  unit.include("optimizer/describe_rule.h");
  unit.function("void gallop_describe(gallop::RuleData* out)",
                fmt::format("*out = gallop::detail::describe<gallop::rules::{}>();", rule.type));
  using Describe = void(RuleData*);
  auto* function = reinterpret_cast<Describe*>(
      load_function(unit.text(), library_flags("-O2 -ffp-contract=off"), "gallop_describe"));
  RuleData data;
  function(&data);
  return data;
}

}  // namespace

void describe_again(const Rule& rule) { describe(text_of(rule)); }

const cpu::RuleKernels& cpu_kernels(const RuleText& rule, int isa) {
  const std::string name = cpu::toolkits()[static_cast<size_t>(isa)]->isa;
  Unit unit(rule);
  unit.line("#define GALLOP_RULE " + rule.type);
  unit.line("#define GALLOP_RULE_ID rule");
  unit.line("#define GALLOP_ISA " + name);
  unit.include("cpu/rule_kernels.h");
  unit.function("const gallop::cpu::RuleKernels* gallop_kernels()",
                fmt::format("return &gallop::cpu::kernels_rule_{};", name));
  using Kernels = const cpu::RuleKernels*();
  return *reinterpret_cast<Kernels*>(
      load_function(unit.text(), kernel_flags(name), "gallop_kernels"))();
}

std::shared_ptr<const RuleText> linked_in_text(const char* path, const char* folder,
                                               const char* text) {
  return std::make_shared<const RuleText>(rule_text(path, folder, text));
}

const RuleText& text_of(const Rule& rule) {
  if (rule.text != nullptr) return *rule.text;
  if (const RuleText* ours = built_in_rule(rule.info.name)) return *ours;
  throw Error(ErrorCode::unsupported,
              fmt::format("{} was linked in without its text, expected another mode than compiled",
                          rule.info.name));
}

std::vector<std::string> kernel_flags(std::string_view isa) {
#define GALLOP_FLAGS(name, flags) \
  if (isa == #name) return library_flags(flags);
  GALLOP_FOREACH_ISA_FLAGS(GALLOP_FLAGS)
#undef GALLOP_FLAGS
  throw Error(ErrorCode::invalid_argument,
              fmt::format("instruction set '{}' is not in this build", isa));
}

const Rule& load_rule(const std::string& path) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  RuleText text = read_rule_file(path);
  if (const Rule* known = find_rule_if(text.name)) {
    if (!known->from_file) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: a rule named '{}' exists already, expected a file and a rule "
                              "of another name",
                              path, text.name));
    }
    if (known->text->path == text.path && known->text->text == text.text) return *known;
  }
  Rule rule(describe(text));
  if (rule.info.name != text.name) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the rule's name is '{}', expected its file's, '{}'", path,
                            rule.info.name, text.name));
  }
  const std::string name = text.name;
  rule.text = std::make_shared<const RuleText>(std::move(text));
  rule.from_file = true;
  replace_rule(std::move(rule));
  return find_rule(name);
}

}  // namespace gallop::jit

std::string gallop::load_rule_file(const std::string& path) {
  return jit::load_rule(path).info.name;
}
