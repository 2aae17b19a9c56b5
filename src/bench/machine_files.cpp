// SPDX-License-Identifier: MIT
#include "bench/machine_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

namespace gallop::bench {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

std::string trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n\"");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n\"") - first + 1));
}

// The value of the first "key<separator>value" line, trimmed.
std::string value_of(const std::string& text, std::string_view key, char separator) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(separator);
    if (at != std::string::npos && trim(std::string_view(line).substr(0, at)) == key) {
      return trim(std::string_view(line).substr(at + 1));
    }
  }
  return {};
}

int64_t leading_number(std::string_view text, int base = 10) {
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return result.ec == std::errc() ? value : 0;
}

struct ArmPart {
  int64_t implementer;
  int64_t part;
  std::string_view name;
};

// The server and board CPUs one is likely to meet; others show their numbers.
constexpr std::array kArmParts = {
    ArmPart{0x41, 0xd03, "Arm Cortex-A53"},   ArmPart{0x41, 0xd07, "Arm Cortex-A57"},
    ArmPart{0x41, 0xd08, "Arm Cortex-A72"},   ArmPart{0x41, 0xd0b, "Arm Cortex-A76"},
    ArmPart{0x41, 0xd0c, "Arm Neoverse-N1"},  ArmPart{0x41, 0xd40, "Arm Neoverse-V1"},
    ArmPart{0x41, 0xd49, "Arm Neoverse-N2"},  ArmPart{0x41, 0xd4f, "Arm Neoverse-V2"},
    ArmPart{0x41, 0xd84, "Arm Neoverse-V3"},  ArmPart{0x43, 0x0af, "Cavium ThunderX2"},
    ArmPart{0x46, 0x001, "Fujitsu A64FX"},    ArmPart{0x48, 0xd01, "HiSilicon Kunpeng 920"},
    ArmPart{0xc0, 0xac3, "Ampere AmpereOne"},
};

std::string arm_name(const std::string& implementer, const std::string& part) {
  if (!implementer.starts_with("0x") || !part.starts_with("0x")) return {};
  const int64_t implementer_id = leading_number(implementer.substr(2), 16);
  const int64_t part_id = leading_number(part.substr(2), 16);
  for (const ArmPart& known : kArmParts) {
    if (known.implementer == implementer_id && known.part == part_id)
      return std::string(known.name);
  }
  return fmt::format("Arm CPU (implementer {}, part {})", implementer, part);
}

// CPU time per period, both in microseconds; "max", "-1" and nonsense grant all of it.
double quota_cpus(std::string_view quota_text, std::string_view period_text) {
  const int64_t quota = leading_number(quota_text);
  const int64_t period = leading_number(period_text);
  if (quota <= 0 || period <= 0) return kNoLimit;
  return static_cast<double>(quota) / static_cast<double>(period);
}

bool lists_cpu(std::string_view controllers) {
  return fmt::format(",{},", controllers).find(",cpu,") != std::string::npos;
}

}  // namespace

std::string MachineFiles::text(const std::string& path) const {
  std::ifstream file(root_ + path);
  std::ostringstream out;
  if (file) out << file.rdbuf();
  return out.str();
}

std::string MachineFiles::first_line(const std::string& path) const {
  const std::string all = text(path);
  return trim(std::string_view(all).substr(0, all.find('\n')));
}

std::string MachineFiles::cpu_name() const {
  const std::string info = text("/proc/cpuinfo");
  std::string model = value_of(info, "model name", ':');
  if (!model.empty() && model != "unknown") return model;
  return arm_name(value_of(info, "CPU implementer", ':'), value_of(info, "CPU part", ':'));
}

int64_t MachineFiles::cache_bytes(int level) const {
  for (int index = 0;; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const std::string found = first_line(folder + "level");
    if (found.empty()) return 0;
    if (leading_number(found) != level || first_line(folder + "type") == "Instruction") continue;
    const std::string size = first_line(folder + "size");
    const int64_t unit = size.ends_with('K') ? 1 << 10 : size.ends_with('M') ? 1 << 20 : 1;
    return leading_number(size) * unit;
  }
}

int64_t MachineFiles::memory_bytes() const {
  return leading_number(value_of(text("/proc/meminfo"), "MemTotal", ':')) * 1024;  // in kB
}

std::string MachineFiles::os_name() const {
  return value_of(text("/etc/os-release"), "PRETTY_NAME", '=');
}

std::string MachineFiles::governor() const {
  return first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
}

int64_t MachineFiles::cpu_mhz() const {
  int64_t most = 0;
  std::istringstream lines(text("/proc/cpuinfo"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("cpu MHz"))
      most = std::max(most, leading_number(value_of(line, "cpu MHz", ':')));
  }
  if (most > 0) return most;
  // Arm's cpuinfo does not tell; this is in kHz.
  return leading_number(first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")) / 1000;
}

// Version 2 names no controllers in /proc/self/cgroup, version 1 mounts each list of them.
double MachineFiles::group_cpus(const std::string& controllers, const std::string& group) const {
  if (controllers.empty()) {
    const std::string line = first_line("/sys/fs/cgroup" + group + "/cpu.max");  // "150000 100000"
    const size_t gap = line.find(' ');
    return gap == std::string::npos ? kNoLimit : quota_cpus(line, line.substr(gap + 1));
  }
  double least = kNoLimit;
  for (const std::string& mount : {controllers, std::string("cpu")}) {
    const auto value = [&](const char* file) {
      return first_line(fmt::format("/sys/fs/cgroup/{}{}/{}", mount, group, file));
    };
    least = std::min(least, quota_cpus(value("cpu.cfs_quota_us"), value("cpu.cfs_period_us")));
  }
  return least;
}

double MachineFiles::cgroup_cpus() const {
  double least = kNoLimit;
  std::istringstream lines(text("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {  // "id:controllers:/path"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !lists_cpu(controllers)) continue;
    // Every group up to the root may set a limit, and the tightest holds.
    for (std::string path = line.substr(second + 1);; path.erase(path.rfind('/'))) {
      if (path == "/") path.clear();
      least = std::min(least, group_cpus(controllers, path));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return least;
}

}  // namespace gallop::bench
