#pragma once
// The file of kernel choices (device/autotune.hpp).
// One line an entry, after a line that names the machine (entries of other machines are kept, not used):
//   @<TAB>fingerprint
//   key<TAB>choice<TAB>name=microseconds<TAB>name=microseconds …<TAB>rejected name: reason<TAB>disturbed
// The last two only where it was so.

#include <cairn/core/error.hpp>

#include <cstdlib>
#include <fstream>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// One line of the registry.
struct autotune_entry {
    std::string choice;                                   ///< name of the candidate in use
    std::vector<std::pair<std::string, double>> seconds;  ///< what was measured; empty for a choice that was not
    bool disturbed = false;                               ///< other programs had the processors while it was measured
    std::map<std::string, std::string> rejected{};        ///< candidates that gave wrong results, and what was wrong
};

/// Entries by key, of one machine.
using autotune_section = std::map<std::string, autotune_entry>;

namespace detail {

inline void write_autotune_entry(std::ostream& out, const std::string& key, const autotune_entry& entry) {
    out << key << '\t' << entry.choice;
    for (const auto& [name, seconds] : entry.seconds) out << '\t' << name << '=' << seconds * 1e6;
    for (const auto& [name, reason] : entry.rejected) out << "\trejected " << name << ": " << reason;
    out << (entry.disturbed ? "\tdisturbed\n" : "\n");
}

inline std::map<std::string, autotune_section> read_autotune_file(const std::string& path) {
    std::map<std::string, autotune_section> sections;
    std::ifstream in(path);
    if (!in) return sections;
    autotune_section* current = nullptr;
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
        if (line.empty()) continue;
        std::vector<std::string> fields{""};
        for (char c : line) {
            if (c == '\t')
                fields.emplace_back();
            else
                fields.back() += c;
        }
        const bool heading = fields[0] == "@" && fields.size() == 2;
        require(heading || (current && fields.size() >= 2), "autotune: line ", number, " of ", path,
                " is not 'key<TAB>choice…': delete the file to measure again");
        if (heading) {
            current = &sections[fields[1]];
            continue;
        }
        autotune_entry entry{fields[1], {}};
        if (fields.back() == "disturbed" && fields.size() > 2) {
            entry.disturbed = true;
            fields.pop_back();
        }
        for (std::size_t i = 2; i < fields.size(); ++i) {
            if (const auto colon = fields[i].find(": ");
                fields[i].starts_with("rejected ") && colon != std::string::npos) {
                entry.rejected[fields[i].substr(9, colon - 9)] = fields[i].substr(colon + 2);
                continue;
            }
            const auto equals = fields[i].rfind('=');
            const std::string number_text = equals == std::string::npos ? "" : fields[i].substr(equals + 1);
            char* end = nullptr;
            const double microseconds = std::strtod(number_text.c_str(), &end);
            require(!number_text.empty() && *end == 0 && microseconds >= 0, "autotune: line ", number, " of ", path,
                    ": '", fields[i], "' is not name=microseconds: delete the file to measure again");
            entry.seconds.emplace_back(fields[i].substr(0, equals), microseconds * 1e-6);
        }
        (*current)[fields[0]] = std::move(entry);
    }
    return sections;
}

}  // namespace detail

}  // namespace cairn
