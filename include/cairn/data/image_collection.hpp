#pragma once
// Labelled images in class folders, the layout of ImageNet: …/CLASS/NAME.{jpg,jpeg,png}, in a folder or inside an
// archive.
//   the class is the folder that an image lies in
//   a folder above that called train, val (valid, validation) or test is the part that it belongs to; where there is no
//   test, the validation set is for testing (ImageNet)
//   classes are numbered in alphabetical order, over all parts
// Images in formats that are not read, images beside the parts, and classes or parts that cannot be meant so are
// refused by name: none is left out or mixed in silence. Hidden files and folders are not looked at.
// An archive is read once and kept in memory as it is, compressed; a folder's files are read when they are needed.

#include <cairn/core/error.hpp>
#include <cairn/data/archive.hpp>
#include <cairn/data/bytes.hpp>
#include <cairn/data/dataset.hpp>
#include <cairn/data/split.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

namespace cairn {

/// What to do about a class folder without images.
enum class empty_class { stop, leave_out };

/// All images of a folder or an archive, not decoded.
class image_collection {
public:
    struct entry {
        std::string name;  // path below the root
        std::int32_t label = 0;
        std::string part;                 // train, validation, test, or "" where the layout has no parts
        std::vector<std::uint8_t> bytes;  // of archives only
    };

    /// Lists a folder or reads an archive. Throws when there is no image, when a class is empty (unless it may be left
    /// out), when there are images in other formats or outside the parts, when links lead back to a folder above them,
    /// or when the archive is damaged or larger than half of the machine's memory. `or_else`: a further remedy for an
    /// empty class, for the message.
    explicit image_collection(const std::filesystem::path& root, empty_class policy = empty_class::stop,
                              const std::string& or_else = {})
        : root_(root) {
        std::set<std::string> folders;
        if (std::filesystem::is_directory(root))
            list_folder(folders);
        else if (is_archive_name(root))
            list_archive(folders);
        else
            fail(root.string(), ": neither a folder nor an archive (.tar, .tar.gz, .tar.zst)");
        refuse_unread();
        std::sort(entries_.begin(), entries_.end(), [](const entry& a, const entry& b) { return a.name < b.name; });
        require(!entries_.empty(), root.string(),
                ": no image (.jpg, .jpeg, .png) in any class folder (ROOT/CLASS/NAME.jpg)",
                others_ ? concat("; ", others_, " other file(s)") : "");
        refuse_empty(folders, policy, or_else);
        number_classes();
    }

    index_t size() const { return static_cast<index_t>(entries_.size()); }
    const std::vector<entry>& entries() const { return entries_; }
    const std::vector<std::string>& classes() const { return classes_; }
    const std::vector<std::string>& left_out() const { return left_out_; }  // empty class folders
    std::string name(index_t i) const { return concat(root_.string(), '/', at(i).name); }
    std::int32_t label(index_t i) const { return at(i).label; }

    /// Compressed bytes of image i, through `buffer` where they must be read from disk.
    byte_span bytes(index_t i, std::vector<std::uint8_t>& buffer) const {
        const entry& e = at(i);
        if (!e.bytes.empty() || in_memory_) return e.bytes;
        buffer = read_bytes(root_ / e.name);
        return buffer;
    }

    /// Images of one part. Where the layout has no parts: `fraction` of every class by `seed` is for training, the rest
    /// for testing. Throws when the part is empty and `fraction` is not what makes it so (0 or 1).
    std::vector<index_t> part_of(part which, double fraction = 0.8, std::uint64_t seed = 0) const {
        const char* wanted = which == part::train ? "train" : "test";
        if (!has_parts_) {
            std::vector<std::int32_t> labels;
            for (const entry& e : entries_) labels.push_back(e.label);
            split_indices s = stratified_split(labels, fraction, seed);
            const std::vector<index_t>& chosen = which == part::train ? s.first : s.second;
            require(!chosen.empty() || fraction == (which == part::train ? 0 : 1), root_.string(), ": ", fraction,
                    " of each class for training, rounded, leaves no image for the ", wanted,
                    " part; take another fraction, or more images");
            return chosen;
        }
        std::vector<index_t> chosen = images_below(wanted);
        if (chosen.empty() && which == part::test) chosen = validation();
        require(!chosen.empty(), root_.string(), ": has folders by part, but none called ", wanted,
                which == part::test ? ", val, valid or validation" : "");
        return chosen;
    }

    /// Images of the validation set; none where the layout has none.
    std::vector<index_t> validation() const { return images_below("validation"); }

private:
    const entry& at(index_t i) const { return entries_[static_cast<std::size_t>(i)]; }

    std::vector<index_t> images_below(std::string_view name) const {
        std::vector<index_t> chosen;
        for (index_t i = 0; i < size(); ++i)
            if (at(i).part == name) chosen.push_back(i);
        return chosen;
    }

    // Whether a path holds a hidden file or folder, or is of the notes that macOS puts beside the files of an archive.
    static bool hidden(const std::string& name) {
        return name.starts_with('.') || name.find("/.") != std::string::npos || name.starts_with("__MACOSX");
    }
    // Whether a file's name has one of the endings; a hidden one has none.
    static bool ends_in(const std::string& name, std::span<const std::string_view> endings) {
        const std::string ending = lower_case(std::filesystem::path(name).extension().string());
        return !hidden(name) && std::find(endings.begin(), endings.end(), ending) != endings.end();
    }
    static bool is_image_name(const std::string& name) {
        constexpr std::array<std::string_view, 5> endings{".jpg", ".jpeg", ".jpe", ".jfif", ".png"};
        return ends_in(name, endings);
    }

    void note_other(const std::string& name) {
        constexpr std::array<std::string_view, 30> endings{
            ".bmp", ".dib", ".webp", ".tif", ".tiff", ".gif", ".heic", ".heif", ".avif", ".jp2",
            ".j2k", ".jxl", ".ppm",  ".pgm", ".pbm",  ".pnm", ".tga",  ".exr",  ".hdr",  ".ico",
            ".mpo", ".pcx", ".psd",  ".qoi", ".svg",  ".dng", ".cr2",  ".nef",  ".arw",  ".npy"};
        ++others_;
        if (ends_in(name, endings) && name.find('/') != std::string::npos) unread_.push_back(name);
    }
    void refuse_unread() {
        if (unread_.empty()) return;
        std::sort(unread_.begin(), unread_.end());
        fail(root_.string(), ": image '", unread_.front(), "'",
             unread_.size() > 1 ? concat(" and ", unread_.size() - 1, " more are") : " is",
             " in a format that is not read; convert to .png or .jpg, or move them out of the class folders");
    }

    void list_folder(std::set<std::string>& folders) {
        const auto options = std::filesystem::directory_options::follow_directory_symlink;
        try {
            std::vector<std::filesystem::path> above{
                std::filesystem::canonical(root_)};  // the folder, and those around it
            const std::filesystem::recursive_directory_iterator end;
            for (std::filesystem::recursive_directory_iterator file(root_, options); file != end; ++file) {
                const std::string name = file->path().lexically_relative(root_).generic_string();
                if (is_folder(*file, name)) {
                    above.resize(static_cast<std::size_t>(file.depth()) + 1);
                    above.push_back(std::filesystem::canonical(file->path()));
                    refuse_loop(above, name);
                    if (!hidden(name)) folders.insert(name);
                } else if (is_image_name(name)) {
                    entries_.push_back({name, 0, "", {}});
                } else {
                    note_other(name);
                }
            }
        } catch (const std::filesystem::filesystem_error& e) {
            fail(root_.string(), ": ", e.what());
        }
    }

    bool is_folder(const std::filesystem::directory_entry& file, const std::string& name) const {
        std::error_code failure;
        const bool folder = file.is_directory(failure);
        require(failure != std::errc::too_many_symbolic_link_levels, root_.string(), ": link '", name,
                "' leads to itself; remove it");
        require(hidden(name) || file.exists(failure), root_.string(), ": link '", name,
                "' leads nowhere; mend or remove it");
        return folder;
    }

    // The last of `folders` is to be entered; the others lie around it, so that it may not lie around them.
    void refuse_loop(const std::vector<std::filesystem::path>& folders, const std::string& name) const {
        const std::filesystem::path& last = folders.back();
        for (const std::filesystem::path& outer : std::span(folders).first(folders.size() - 1))
            require(std::mismatch(last.begin(), last.end(), outer.begin(), outer.end()).first != last.end(),
                    root_.string(), ": link '", name, "' leads back to ", last.string(),
                    ", which it lies in; remove it");
    }

    void list_archive(std::set<std::string>& folders) {
        in_memory_ = true;
        const auto wanted = [&](const std::string& name) {
            if (is_image_name(name)) return true;
            note_other(name);
            return false;
        };
        for (archive_member& member : read_archive(root_, wanted, half_of_memory())) {
            if (member.folder && !hidden(member.name))
                folders.insert(member.name);
            else if (!member.folder)
                entries_.push_back({std::move(member.name), 0, "", std::move(member.bytes)});
        }
    }

    // Empty are folders below which there is no image, and above which there is no such folder either.
    void refuse_empty(const std::set<std::string>& folders, empty_class policy, const std::string& or_else) {
        std::set<std::string> filled;
        for (const entry& e : entries_)
            for (auto slash = e.name.rfind('/'); slash != std::string::npos;
                 slash = slash ? e.name.rfind('/', slash - 1) : std::string::npos)
                filled.insert(e.name.substr(0, slash));
        for (const std::string& folder : folders)
            if (!filled.contains(folder)) left_out_.push_back(folder);
        if (left_out_.empty() || policy == empty_class::leave_out) return;
        fail(root_.string(), ": class folder '", left_out_.front(), "' holds no image (.jpg, .jpeg, .png)",
             left_out_.size() > 1 ? concat(", and ", left_out_.size() - 1, " more") : "", "; remove or fill it",
             or_else.empty() ? "" : ", or ", or_else);
    }

    // The part that a folder of this name holds, "" if it is none.
    static std::string part_called(const std::string& folder) {
        const std::string name = lower_case(folder);
        if (name == "train" || name == "training") return "train";
        if (name == "val" || name == "valid" || name == "validation") return "validation";
        return name == "test" || name == "testing" ? "test" : "";
    }

    // Layouts that would be read as others than are meant. names: the class of each image.
    void refuse_mixed(const std::vector<std::string>& names) const {
        const bool only_parts =
            std::ranges::none_of(names, [](const std::string& name) { return part_called(name).empty(); });
        require(has_parts_ || !only_parts, root_.string(), ": image '", entries_.front().name,
                "' lies in a part, but in no class folder of it (train/CLASS/NAME.jpg is expected)");
        std::map<std::string, std::string> places;  // of each class, its folder, or one that is trained on
        const bool trained = !images_below("train").empty();
        for (std::size_t i = 0; i < names.size(); ++i) {
            const std::string folder = std::filesystem::path(entries_[i].name).parent_path().generic_string();
            const auto [place, added] = places.try_emplace(names[i], has_parts_ ? "" : folder);
            require(has_parts_ || place->second == folder, root_.string(), ": class folders '", place->second,
                    "' and '", folder, "' have one name; if they are of parts, call those train, val and test, else ",
                    "give them one folder");
            if (entries_[i].part == "train") place->second = folder;
        }
        for (const auto& [name, place] : places)
            require(!trained || !place.empty(), root_.string(), ": class '", name,
                    "' has no image in train; mend its name there or elsewhere, or move it away");
    }

    void number_classes() {
        std::map<std::string, std::int32_t> numbers;
        std::vector<std::string> names;
        for (entry& e : entries_) {
            const std::filesystem::path path(e.name);
            require(path.has_parent_path(), root_.string(), ": image '", e.name,
                    "' lies in no class folder (ROOT/CLASS/NAME.jpg is expected)");
            const auto folder = path.parent_path();
            names.push_back(folder.filename().string());
            numbers[names.back()] = 0;
            for (const auto& above : folder.parent_path())
                if (const std::string part = part_called(above.string()); !part.empty()) e.part = part;
            has_parts_ |= !e.part.empty();
        }
        for (const entry& e : entries_)
            require(!has_parts_ || !e.part.empty(), root_.string(), ": has folders by part, but image '", e.name,
                    "' lies in none of them; call its part train, val or test, or move it away");
        refuse_mixed(names);
        for (auto& [name, number] : numbers) {
            number = static_cast<std::int32_t>(classes_.size());
            classes_.push_back(name);
        }
        for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i].label = numbers[names[i]];
    }

    std::filesystem::path root_;
    bool in_memory_ = false, has_parts_ = false;
    index_t others_ = 0;
    std::vector<entry> entries_;
    std::vector<std::string> classes_, left_out_, unread_;
};

}  // namespace cairn
