#pragma once
// Text as windows of bytes, for models that predict the next byte: of `length` bytes x[0] … x[length−1] the label of
// position k is the byte behind it. 256 classes, no tokeniser: any file in any encoding is a text.

#include <cairn/core/kept_once.hpp>
#include <cairn/data/data_format.hpp>
#include <cairn/data/gzip.hpp>

#include <algorithm>

namespace cairn {

/// Bytes, and their name in errors.
struct text {
    std::vector<std::uint8_t> bytes;
    std::string name;
};

/// A text file, plain or gzip. Throws when it cannot be read.
inline std::shared_ptr<const text> read_text(const std::filesystem::path& path) {
    return std::make_shared<const text>(text{read_maybe_gzip(path), path.string()});
}

/// Windows that follow each other in bytes [begin, end) of a text. With `shifted` they begin in every epoch at another
/// of the first `length` bytes, so that what a window separates in one epoch stands together in others.
class text_windows {
public:
    /// Throws when there is not one window.
    text_windows(std::shared_ptr<const text> from, index_t length, bool shifted, index_t begin = 0, index_t end = -1)
        : text_(std::move(from)),
          length_(length),
          begin_(begin),
          end_(end < 0 ? std::ssize(text_->bytes) : end),
          shifted_(shifted) {
        require(length_ >= 1, text_->name, ": windows of ", length_, " bytes; at least 1 is needed");
        require(begin_ >= 0 && begin_ <= end_ && end_ <= std::ssize(text_->bytes), text_->name, ": no bytes ", begin_,
                " to ", end_, "; it has ", text_->bytes.size());
        const index_t needed = (shifted_ ? 2 * length_ - 1 : length_) + 1;
        require(end_ - begin_ >= needed, text_->name, ": ", end_ - begin_,
                " bytes in this part are less than one window; windows of ", length_, " bytes need ", needed,
                ": take shorter ones or more text");
    }

    index_t size() const { return (end_ - begin_ - (shifted_ ? length_ : 1)) / length_; }
    shape sample_shape() const { return {length_}; }
    target_info targets() const {
        target_info info;
        info.labels_each = length_;
        for (int byte = 0; byte < 256; ++byte) info.names.push_back(concat("byte ", byte));
        return info;
    }
    std::string sample_name(index_t i) const { return concat(text_->name, " from byte ", begin_ + i * length_); }

    /// Of shifted windows the last that an epoch may choose: window i has no label of those before it.
    text_windows unaugmented() const {
        return shifted_ ? text_windows(text_, length_, false, begin_ + length_ - 1, end_) : *this;
    }

    bool read(index_t i, augment_key key, sample_slot slot) const {
        const random_stream random{key.seed, stream_of("windows"), key.epoch};
        const index_t shift = shifted_ ? static_cast<index_t>(random.below(static_cast<std::uint64_t>(length_), 0)) : 0;
        const std::uint8_t* const window = text_->bytes.data() + begin_ + shift + i * length_;
        std::copy_n(window, length_, slot.x);
        std::copy_n(window + 1, length_, slot.label);
        return true;
    }

private:
    std::shared_ptr<const text> text_;
    index_t length_, begin_, end_;
    bool shifted_;
};

static_assert(Augmented<text_windows>);

/// data.format = "text": names of files in the folder, or the path is the file; without a second file the end of the
/// first is for tests.
struct text_format {
    static constexpr const char* name = "text";
    static constexpr data_source source{"text"};
    index_t length = 128;
    bool shift = true;
    std::string file = "tinyshakespeare.txt", test_file;
    double test_fraction = 0.1;

    template <class Table>
    void read(Table& table) {
        table("length", length, from_to(1, 1 << 20));
        table("shift", shift);
        table("file", file);
        table("test_file", test_file);
        table("test_fraction", test_fraction, from_below(0, 1));
    }
    data_parts without_files(std::uint64_t seed) const {
        static kept_once<std::pair<index_t, std::uint64_t>, text> of_ranks;
        const index_t size = std::max<index_t>(1 << 22, 64 * length);
        const auto noise = of_ranks.get({size, seed}, [&] {
            const random_stream random{seed, stream_of("generated"), 0};
            text made{.bytes = std::vector<std::uint8_t>(static_cast<std::size_t>(size)), .name = "generated text"};
            for (std::size_t i = 0; i < made.bytes.size(); ++i)
                made.bytes[i] = static_cast<std::uint8_t>(random.bits4(i / 16)[i / 4 % 4] >> 8 * (i % 4));
            return made;
        });
        return parts_of(text_windows(noise, length, shift), {});
    }
    data_parts load(const std::filesystem::path& path) const {
        const bool folder = std::filesystem::is_directory(path);
        const auto train = read_text(folder ? path / file : path);
        if (!test_file.empty())
            return parts_of(text_windows(train, length, shift),
                            text_windows(read_text((folder ? path : path.parent_path()) / test_file), length, false));
        const index_t bytes = std::ssize(train->bytes),
                      cut = bytes - static_cast<index_t>(test_fraction * static_cast<double>(bytes));
        if (cut == bytes) return parts_of(text_windows(train, length, shift), {});
        return parts_of(text_windows(train, length, shift, 0, cut), text_windows(train, length, false, cut, bytes));
    }

private:
    static data_parts parts_of(any_dataset train, any_dataset test) {
        data_parts parts = make_data_parts(std::move(train), std::move(test));
        parts.in_sequence = true;
        return parts;
    }
};

}  // namespace cairn
