#pragma once
// What is in a version: a file of text lines, the last of which has the XXH3-64 of all before it.
//   cairn manifest 1
//   attempt 3f2a9c41d07b5e6622b1a7c04d9e8f10
//   step 500
//   ranks 2
//   pack 1089536 9c1185a5c5e9fc54 rank-0000.pack           bytes, checksum of the header, file; for each
//   tensor float32 64,3,7,7 5b1e0e7a4c8d2f93 model/conv1   type, extents, digest (digest.hpp), name; for each
//   digest 0b54f1d8a7c3e296                                of all tensors
//   checksum 6f3bd8ac20b19f4d
// It is refused unless it is, byte for byte, what would be written: no damage and no second spelling passes.

#include <cairn/state/pack_file.hpp>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

/// See the top of the file.
struct manifest {
    struct pack {
        std::string file;
        std::uint64_t bytes = 0, header_checksum = 0;
        bool operator==(const pack&) const = default;
    };
    struct tensor {
        std::string name;
        element_type type = element_type::float32;
        shape extents;
        std::uint64_t digest = 0;
        bool operator==(const tensor&) const = default;
    };

    version_id version;
    std::int32_t ranks = 1;
    std::vector<pack> packs;
    std::vector<tensor> tensors;
    std::uint64_t digest = 0;

    bool operator==(const manifest&) const = default;
};

/// Files of the ranks' own packs; linked ones are not among them.
inline std::vector<std::string> own_packs(const manifest& m) {
    std::vector<std::string> files;
    for (std::int32_t r = 0; r < m.ranks; ++r) files.push_back(pack_id{m.version, r, m.ranks}.file());
    return files;
}

namespace detail {

inline std::string hexadecimal(std::uint64_t number) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
    return text;
}

/// Lines of words; what is not there is an error that names file and line.
class manifest_parser {
public:
    manifest_parser(std::string_view text, const std::string& file) : left_(text), file_(file) {}

    /// Goes on to the next line, whose first word is to be `key`.
    void line(std::string_view key) {
        ++number_;
        const std::size_t end = left_.find('\n');
        if (end == std::string_view::npos) fail_here(concat("is no whole line of ", key, ": truncated"));
        line_ = left_.substr(0, end);
        left_.remove_prefix(end + 1);
        const std::string_view found = word();
        if (found != key) fail_here(concat("begins with \"", found.substr(0, 40), "\" in place of ", key));
    }
    bool next_is(std::string_view key) const {
        return left_.substr(0, key.size()) == key && left_.substr(key.size(), 1) == " ";
    }

    std::string_view word() {
        const std::size_t end = std::min(line_.find(' '), line_.size());
        const std::string_view found = line_.substr(0, end);
        line_.remove_prefix(std::min(end + 1, line_.size()));
        return found;
    }
    std::string_view rest() { return std::exchange(line_, {}); }
    template <class T>
    T number(std::string_view digits, int base = 10) {
        T value{};
        const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
        if (problem != std::errc() || end != digits.data() + digits.size() || digits.empty())
            fail_here(concat('"', digits.substr(0, 40), "\" is no number"));
        return value;
    }
    std::uint64_t hexadecimal() { return number<std::uint64_t>(word(), 16); }

    [[noreturn]] void fail_here(const std::string& what) const { fail(file_, ": line ", number_, ' ', what); }

private:
    std::string_view left_, line_;
    const std::string& file_;
    int number_ = 0;
};

}  // namespace detail

/// The text of a manifest. Throws on names that a line cannot hold.
inline std::string to_text(const manifest& m) {
    using detail::hexadecimal;
    std::string text = concat("cairn manifest 1\nattempt ", hexadecimal(m.version.attempt[0]),
                              hexadecimal(m.version.attempt[1]), "\nstep ", m.version.step, "\nranks ", m.ranks, '\n');
    const auto in_line = [](const std::string& name) -> const std::string& {
        require(name.find('\n') == std::string::npos, "manifest: the name \"", name, "\" has several lines");
        return name;
    };
    for (const auto& p : m.packs)
        text += concat("pack ", p.bytes, ' ', hexadecimal(p.header_checksum), ' ', in_line(p.file), '\n');
    for (const auto& t : m.tensors) {
        text += concat("tensor ", element_infos[static_cast<std::size_t>(t.type)].name, ' ');
        for (int a = 0; a < t.extents.rank(); ++a) text += (a ? "," : "") + std::to_string(t.extents[a]);
        text += concat(' ', hexadecimal(t.digest), ' ', in_line(t.name), '\n');
    }
    text += "digest " + hexadecimal(m.digest) + '\n';
    return text + "checksum " + hexadecimal(xxh3(text.data(), text.size())) + '\n';
}

/// The manifest that `text`, the content of `file`, is. Throws on any other text, naming file and line.
inline manifest parse_manifest(std::string_view text, const std::string& file) {
    detail::manifest_parser in(text, file);
    manifest m;
    in.line("cairn");
    if (const std::string_view rest = in.rest(); rest != "manifest 1")
        in.fail_here(concat("says \"", rest.substr(0, 40), "\"; this program reads manifest 1"));
    in.line("attempt");
    const std::string_view attempt = in.word();
    if (attempt.size() != 32) in.fail_here("has no attempt of 32 digits");
    m.version.attempt = {in.number<std::uint64_t>(attempt.substr(0, 16), 16),
                         in.number<std::uint64_t>(attempt.substr(16), 16)};
    in.line("step");
    m.version.step = in.number<std::int64_t>(in.word());
    in.line("ranks");
    m.ranks = in.number<std::int32_t>(in.word());
    if (m.version.step < 0 || m.ranks < 1) in.fail_here(concat("says ", m.ranks, " ranks at step ", m.version.step));
    for (; in.next_is("pack");) {
        in.line("pack");
        manifest::pack p;
        p.bytes = in.number<std::uint64_t>(in.word());
        p.header_checksum = in.hexadecimal();
        p.file = in.rest();
        if (p.file.find('/') != std::string::npos) in.fail_here("names a file of another directory");
        m.packs.push_back(std::move(p));
    }
    for (; in.next_is("tensor");) {
        in.line("tensor");
        manifest::tensor t;
        const std::string_view type = in.word();
        const auto info = std::ranges::find_if(element_infos, [&](const element_info& i) { return i.name == type; });
        if (info == element_infos.end()) in.fail_here(concat("has the unknown type ", type.substr(0, 40)));
        t.type = static_cast<element_type>(info - element_infos.begin());
        for (std::string_view extents = in.word(); !extents.empty();) {
            const std::size_t end = std::min(extents.find(','), extents.size());
            const auto extent = in.number<std::int64_t>(extents.substr(0, end));
            with_context(file, [&] { t.extents.push_back(extent); });
            extents.remove_prefix(std::min(end + 1, extents.size()));
        }
        t.digest = in.hexadecimal();
        t.name = in.rest();
        m.tensors.push_back(std::move(t));
    }
    in.line("digest");
    m.digest = in.hexadecimal();
    in.line("checksum");
    require(to_text(m) == text, file, ": a checksum is wrong, or a line has another form: corrupt file");
    return m;
}

/// Reads directory/manifest. Throws where it is absent, damaged, or of a version that has not the directory's name.
inline manifest read_manifest(const std::filesystem::path& directory) {
    const detail::state_reader file(directory / "manifest");
    std::string text(file.size(), '\0');
    file.read(0, text.data(), text.size(), "the manifest");
    manifest m = parse_manifest(text, file.name());
    require(m.version.name() == directory.filename().string(), file.name(), ": of version ", m.version.name(),
            ", the directory is called ", directory.filename().string());
    return m;
}

}  // namespace cairn
