#pragma once
// Volumes with a class for each voxel, in the layout of the Medical Segmentation Decathlon (Antonelli et al. 2022):
//   …/images[Tr]/NAME.nii[.gz] and …/labels[Tr]/NAME.nii[.gz], equal names and extents, in a folder or tar archive.
// Or images with a class for each pixel: images/NAME.jpg or .png, and labels/NAME.png, whose grey is the class; these
// are volumes of one slice, and samples then have two axes.
// Input: (v − mean) / deviation of each volume and channel, in a box of `size` voxels around the middle; voxels outside
// the volume are 0, of class 0. Labels: one class for each voxel of the box, 0 is the background.
// All volumes are read at once and kept in memory, 5 bytes a voxel.

#include <cairn/data/archive.hpp>
#include <cairn/data/image_folder.hpp>
#include <cairn/data/nifti.hpp>
#include <cairn/data/split.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

struct segmentation_config {
    std::array<index_t, 3> size{48, 64, 48};  // of the box, (x, y, z); of images (height, width, 1)
    int axes = 3;                             // of a sample: 2 of images
    index_t classes = 0;                      // with the background; 0: as many as the labels have
    index_t shift = 0;                        // the box is moved at random by up to so many voxels along each axis
};

/// What is predicted for each voxel of a box: "background", "class 1", …
inline target_info segmentation_targets(const segmentation_config& config, index_t classes) {
    target_info info;
    for (index_t c = 0; c < classes; ++c) info.names.push_back(c ? concat("class ", c) : "background");
    info.labels_each = config.size[0] * config.size[1] * config.size[2];
    info.labels = label_place::voxels;
    return info;
}

/// All volumes of a folder or archive, in the order of their names.
class segmentation_volumes {
public:
    /// Throws when there is no volume, a label file is missing, extents differ, a file is damaged, or a label is no
    /// class.
    segmentation_volumes(const std::filesystem::path& root, segmentation_config config)
        : config_(config), root_(root.string()) {
        for (const index_t extent : config.size)
            require(extent >= 1, root_, ": volumes of ", extent, " voxels along an axis; at least 1 is needed");
        const std::map<std::string, file_pair> files = is_archive_name(root) ? list_archive(root) : list_folder(root);
        require(!files.empty(), root_,
                ": no volume; images/NAME.nii.gz and labels/NAME.nii.gz are expected (or imagesTr and labelsTr)");
        auto volumes = std::make_shared<std::vector<volume>>();
        std::uint64_t bytes = 0;
        for (const auto& [name, pair] : files) {
            require(pair.image.found && pair.label.found, root_, ": volume ", name, " has no file in ",
                    pair.image.found ? "labels" : "images", "; add it, or remove the other one");
            volumes->push_back(load(pair.image.open(false), pair.label.open(true)));
            bytes += 5 * volumes->back().label.size();
            require(bytes <= half_of_memory(), root_, ": the volumes up to ", name, " take ", bytes,
                    " bytes, more than half of the machine's memory; take fewer of them");
        }
        volumes_ = std::move(volumes);
        name_classes();
    }

    index_t size() const { return static_cast<index_t>(volumes_->size()); }
    shape sample_shape() const {
        shape sample(std::span<const index_t>(config_.size.data(), static_cast<std::size_t>(config_.axes)));
        sample.push_back(volumes_->front().extents.back());
        return sample;
    }
    target_info targets() const { return info_; }
    std::string sample_name(index_t i) const { return at(i).name; }

    /// The same volumes without shifts.
    segmentation_volumes unaugmented() const {
        segmentation_volumes other = *this;
        other.config_.shift = 0;
        return other;
    }

    bool read(index_t i, augment_key key, sample_slot slot) const {
        const volume& v = at(i);
        const index_t channels = v.extents.back();
        std::array<index_t, 3> begin = middle(v);
        if (config_.shift > 0) {
            sample_random random(key, i);
            for (int a = 0; a < config_.axes; ++a)
                begin[static_cast<std::size_t>(a)] += random.below(2 * config_.shift + 1) - config_.shift;
        }
        const auto [sx, sy, sz] = config_.size;
        std::fill_n(slot.x, sx * sy * sz * channels, 0.0f);
        std::fill_n(slot.label, sx * sy * sz, 0);
        // Rows along z, as far as they lie in the volume.
        const index_t first = std::max<index_t>(0, -begin[2]), last = std::min(sz, v.extents[2] - begin[2]);
        for (index_t x = 0; x < sx && first < last; ++x)
            for (index_t y = 0; y < sy; ++y) {
                const index_t from_x = x + begin[0], from_y = y + begin[1];
                if (from_x < 0 || from_x >= v.extents[0] || from_y < 0 || from_y >= v.extents[1]) continue;
                const index_t from = (from_x * v.extents[1] + from_y) * v.extents[2] + begin[2] + first,
                              to = (x * sy + y) * sz + first;
                std::copy_n(v.voxels.data() + from * channels, (last - first) * channels, slot.x + to * channels);
                std::copy_n(v.label.data() + from, last - first, slot.label + to);
            }
        return true;
    }

    /// Voxels of volume i that are not background: all of them, and those outside the box when it is not moved.
    std::pair<index_t, index_t> foreground_and_lost(index_t i) const {
        const volume& v = at(i);
        const std::array<index_t, 3> begin = middle(v);
        index_t all = 0, lost = 0, from = 0;
        std::array<index_t, 3> p{};
        for (p[0] = 0; p[0] < v.extents[0]; ++p[0])
            for (p[1] = 0; p[1] < v.extents[1]; ++p[1])
                for (p[2] = 0; p[2] < v.extents[2]; ++p[2]) {
                    if (v.label[static_cast<std::size_t>(from++)] == 0) continue;
                    ++all;
                    bool inside = true;
                    for (std::size_t a = 0; a < 3; ++a) inside &= p[a] >= begin[a] && p[a] < begin[a] + config_.size[a];
                    lost += !inside;
                }
        return {all, lost};
    }

private:
    struct volume {
        std::string name;
        shape extents;  // (x, y, z, channels)
        tensor<float> voxels;
        std::vector<std::uint8_t> label;  // (x, y, z)
        std::vector<double> spacing;      // along x, y and z
    };
    struct one_file {
        bool found = false;
        std::string name;
        std::vector<std::uint8_t> bytes;  // of an archive's member

        volume open(bool as_labels) const {
            const std::vector<std::uint8_t> read = bytes.empty() ? read_bytes(name) : std::vector<std::uint8_t>{};
            const byte_span all = bytes.empty() ? read : bytes;
            return is_jpeg(all) || is_png(all) ? of_image(all, name, as_labels)
                                               : of_nifti(parse_maybe_gzip_nifti(all, name));
        }
    };
    struct file_pair {
        one_file image, label;
    };

    const volume& at(index_t i) const { return (*volumes_)[static_cast<std::size_t>(i)]; }

    std::array<index_t, 3> middle(const volume& v) const {
        std::array<index_t, 3> begin{};
        for (std::size_t a = 0; a < 3; ++a) {
            const index_t room = v.extents[static_cast<int>(a)] - config_.size[a];
            begin[a] = room >= 0 ? room / 2 : -((1 - room) / 2);  // rounded down
        }
        return begin;
    }

    /// Where `path` belongs, or null: its folder is images, imagesTr, labels or labelsTr. Throws on what is neither a
    /// volume nor notes there.
    static one_file* slot_of(const std::filesystem::path& path, std::map<std::string, file_pair>& files) {
        const std::string name = path.filename().string(), folder = path.parent_path().filename().string();
        const bool image = folder == "images" || folder == "imagesTr";
        if (name.starts_with('.') || !(image || folder == "labels" || folder == "labelsTr")) return nullptr;
        const auto ends_in = [&](const auto&... endings) { return (lower_case(name).ends_with(endings) || ...); };
        if (ends_in(".json", ".txt", ".csv", ".tsv", ".md")) return nullptr;
        const bool is_image = ends_in(".png", ".jpg", ".jpeg");
        require(is_image || ends_in(".nii", ".nii.gz"), path.string(),
                ": a volume in a format that is not read; save it as .nii.gz, an image as .png, or move it away");
        file_pair& pair = files[is_image ? path.stem().string() : name];
        return image ? &pair.image : &pair.label;
    }

    static std::map<std::string, file_pair> list_folder(const std::filesystem::path& root) {
        require(std::filesystem::is_directory(root), root.string(),
                ": neither a folder with images/ and labels/ nor an archive of that (.tar, .tar.gz)");
        std::map<std::string, file_pair> files;
        std::error_code failure;
        for (std::filesystem::recursive_directory_iterator file(root, failure), end; !failure && file != end;
             file.increment(failure))
            if (one_file* const slot = slot_of(file->path(), files)) {
                require(!slot->found, root.string(), ": two files ", file->path().string(), " and ", slot->name,
                        " have one name; keep one of them");
                *slot = {true, file->path().string(), {}};
            }
        require(!failure, root.string(), ": ", failure.message());
        return files;
    }

    static std::map<std::string, file_pair> list_archive(const std::filesystem::path& root) {
        std::map<std::string, file_pair> files, probe;
        const auto wanted = [&](const std::string& name) { return slot_of(name, probe) != nullptr; };
        for (archive_member& member : read_archive(root, wanted, half_of_memory())) {
            if (member.folder) continue;
            one_file& slot = *slot_of(member.name, files);
            require(!slot.found, root.string(), ": two members are called ", member.name, "; keep one of them");
            slot = {true, concat(root.string(), '/', member.name), std::move(member.bytes)};
            require(!slot.bytes.empty(), slot.name, ": empty file, a NIfTI-1 volume is expected");
        }
        return files;
    }

    static volume of_nifti(const nifti_volume& file) {
        require(file.shape.rank() == 3 || file.shape.rank() == 4, file.name, ": a volume of shape ", file.shape,
                "; (x, y, z) or (x, y, z, channels) are expected");
        volume v;
        v.name = file.name;
        v.voxels = file.to_tensor();
        v.extents = file.shape;
        if (v.extents.rank() == 3) v.extents.push_back(1);
        v.spacing.assign(file.spacing.begin(), file.spacing.begin() + 3);
        return v;
    }
    // Of three channels; of labels the grey.
    static volume of_image(byte_span bytes, const std::string& name, bool as_labels) {
        image decoded;
        detail::decode_image(bytes, name, decoded);
        const index_t step = as_labels ? 3 : 1;
        volume v;
        v.name = name;
        v.voxels = tensor<float>({decoded.height, decoded.width, 3 / step}, memory_category::data);
        v.extents = {decoded.height, decoded.width, 1, 3 / step};
        v.spacing = {1, 1, 1};
        const std::uint8_t* const pixels = decoded.pixels.data();
        for (index_t i = 0; i < v.voxels.size(); ++i) {
            v.voxels[i] = static_cast<float>(pixels[i * step]);
            require(!as_labels || (pixels[3 * i] == pixels[3 * i + 1] && pixels[3 * i] == pixels[3 * i + 2]), name,
                    ": a pixel of labels has a colour; save their classes as grey of 8 bits, 0, 1, 2, …");
        }
        return v;
    }

    volume load(volume v, const volume& label) const {
        const auto places = [](const volume& of) { return shape{of.extents[0], of.extents[1], of.extents[2]}; };
        require(label.extents.back() == 1 && places(label) == places(v), label.name, ": labels of shape ",
                label.extents.back() == 1 ? places(label) : label.extents, ", the volume ", v.name, " has ", places(v),
                "; they must be equal");
        require(config_.axes == 3 || v.extents[2] == 1, v.name, ": a volume of ", v.extents[2],
                " slices; data.segmentation.size needs three extents");
        for (std::size_t axis = 0; axis < 3; ++axis)
            require(std::abs(label.spacing[axis] - v.spacing[axis]) <= 1e-3 * v.spacing[axis], label.name,
                    ": voxels of labels are ", label.spacing[axis], " apart along axis ", axis, ", those of ", v.name,
                    ' ', v.spacing[axis], "; they must be equal: resample one of them");
        normalise(v);
        const tensor<float>& classes = label.voxels;
        v.label.reserve(static_cast<std::size_t>(classes.size()));
        const float most = config_.classes > 0 ? static_cast<float>(config_.classes - 1) : 255.0f;
        for (const float c : classes.span()) {
            require(c >= 0 && c <= most && c == std::trunc(c), label.name, ": a voxel has label ", c,
                    "; classes are whole numbers from 0 to ", most,
                    config_.classes > 0 ? " (data.segmentation.classes)" : ": is this the file of labels?");
            v.label.push_back(static_cast<std::uint8_t>(c));
        }
        return v;
    }

    static void normalise(volume& v) {
        const index_t channels = v.extents.back(), voxels = v.voxels.size() / channels;
        for (index_t c = 0; c < channels; ++c) {
            double sum = 0, squares = 0;
            for (index_t i = 0; i < voxels; ++i) sum += static_cast<double>(v.voxels[i * channels + c]);
            const double mean = sum / static_cast<double>(voxels);
            for (index_t i = 0; i < voxels; ++i)
                squares += std::pow(static_cast<double>(v.voxels[i * channels + c]) - mean, 2);
            const double deviation = std::sqrt(squares / static_cast<double>(voxels));
            require(std::isfinite(deviation), v.name, ": a voxel is not a finite number; mend or remove the volume");
            require(deviation > 0, v.name, ": all voxels are equal; remove the volume");
            for (index_t i = 0; i < voxels; ++i) {
                float& x = v.voxels[i * channels + c];
                x = static_cast<float>((static_cast<double>(x) - mean) / deviation);
            }
        }
    }

    void name_classes() {
        std::uint8_t highest = 0;
        for (const volume& v : *volumes_) {
            highest = std::max(highest, *std::max_element(v.label.begin(), v.label.end()));
            require(v.extents.back() == volumes_->front().extents.back(), v.name, ": ", v.extents.back(),
                    " channels, but ", volumes_->front().extents.back(), " in ", volumes_->front().name);
        }
        // Distances are in the unit of the spacing where that is one, else in voxels.
        info_ = segmentation_targets(config_, config_.classes > 0 ? config_.classes : index_t{highest} + 1);
        const std::vector<double>& spacing = volumes_->front().spacing;
        const bool is_one = std::ranges::all_of(*volumes_, [&](const volume& v) { return v.spacing == spacing; }) &&
                            std::ranges::all_of(spacing, [](double step) { return step > 0; });
        if (is_one) info_.spacing.assign(spacing.begin(), spacing.begin() + config_.axes);
        require(info_.count() >= 2, root_, ": all labels are 0, the background; there is nothing to learn");
    }

    segmentation_config config_;
    std::string root_;
    std::shared_ptr<const std::vector<volume>> volumes_;
    target_info info_;
};

static_assert(Augmented<segmentation_volumes>);

/// data.format = "segmentation".
struct segmentation_format {
    static constexpr const char* name = "segmentation";
    static constexpr data_source source{"hippocampus",
                                        ", a folder or tar archive of images/NAME.nii.gz and labels/NAME.nii.gz; "
                                        "benchmarks/fetch_data hippocampus fetches one"};
    segmentation_config config;
    fold_choice folds;

    template <class Table>
    void read(Table& table) {
        std::vector<index_t> size(config.size.begin(), config.size.end());
        table("size", size, from_to(1, 4096));
        require(size.size() == 2 || size.size() == 3, "data.segmentation.size has ", size.size(),
                " extents; volumes have three, such as [48, 64, 48], images two");
        config.axes = static_cast<int>(size.size());
        config.size[2] = 1;
        std::copy(size.begin(), size.end(), config.size.begin());
        table("classes", config.classes, from_to(0, 256));
        table("shift", config.shift, from_to(0, 1024));
        folds.read(table);
    }
    data_parts without_files(std::uint64_t seed) const {
        shape sample(std::span<const index_t>(config.size.data(), static_cast<std::size_t>(config.axes)));
        sample.push_back(1);
        return synthetic_parts(sample, segmentation_targets(config, std::max<index_t>(config.classes, 3)), seed);
    }
    data_parts load(const std::filesystem::path& path) const {
        return folds.parts_of(segmentation_volumes(archive_in(path), config));
    }
};

}  // namespace cairn
