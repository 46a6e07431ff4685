#pragma once
// Inputs made of decoded photographs on a grid device (core/encoded_image.hpp): resampled by the host's weights,
// jittered, rounded, normalised.
// One launch a batch, a thread an output pixel: its sums run as the host's do, along rows first. A second one where
// there is jitter, a block an image, because contrast needs the image's mean. Bytes moved: the box once (neighbouring
// outputs share lines of the cache), 12 written an output pixel; with jitter 24 more read and 24 more written.

#include <cairn/core/encoded_image.hpp>
#include <cairn/core/error.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cuda/grid.hpp>

#include <array>
#include <concepts>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace cairn {

namespace grid {

/// A decoded photograph, all in memory of the device.
struct encoded_image_source {
    const std::uint8_t* pixels;  // rows of RGB, `pitch` bytes apart
    index_t pitch;
    std::int32_t taps_down, taps_across;
    const std::int32_t *first_down, *first_across;  // (size)
    const float *down, *across;                     // (size, taps)
    jitter_factors jitter;
};

struct normalise_rgb {
    float scale[3], shift[3];
    bool rounded;

    CAIRN_HD void operator()(const float* v, float* x) const {
        CAIRN_UNROLL
        for (int c = 0; c < 3; ++c) {
            const float value = rounded ? static_cast<float>(static_cast<int>(colour::limited(v[c] + 0.5f))) : v[c];
            x[c] = value * scale[c] + shift[c];
        }
    }
};

struct resample_photographs_kernel {
    index_t count, size;
    bool finished;  // nothing comes after
    normalise_rgb normalise;
    const encoded_image_source* sources;  // (count)
    float* x;                             // (count, size, size, 3)

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t n = count * size * size, stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride) {
            const index_t row = quotient(i, size), u = i - row * size, image = quotient(row, size),
                          y = row - image * size;
            const encoded_image_source& s = sources[image];
            const float* const wy = s.down + y * s.taps_down;
            const float* const wx = s.across + u * s.taps_across;
            const std::uint8_t* line = s.pixels + s.first_down[y] * s.pitch + index_t{3} * s.first_across[u];
            float v[3] = {0, 0, 0};
            for (std::int32_t t = 0; t < s.taps_down; ++t, line += s.pitch) {
                float along[3] = {0, 0, 0};
                for (std::int32_t k = 0; k < s.taps_across; ++k) {
                    CAIRN_UNROLL
                    for (int c = 0; c < 3; ++c) along[c] += wx[k] * static_cast<float>(line[3 * k + c]);
                }
                CAIRN_UNROLL
                for (int c = 0; c < 3; ++c) v[c] += wy[t] * along[c];
            }
            if (finished)
                normalise(v, x + 3 * i);
            else
                for (int c = 0; c < 3; ++c) x[3 * i + c] = v[c];
        }
    }
};

/// A block an image: the steps before contrast and the mean of what they leave, then the others.
struct jitter_photographs_kernel {
    index_t pixels;  // of an image
    normalise_rgb normalise;
    const encoded_image_source* sources;
    float* x;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const jitter_factors f = sources[b.block()].jitter;
        float* const image = x + b.block() * pixels * 3;
        int contrast = 0;
        while (contrast < 4 && !(f.order[contrast] == 1 && f.active[1])) ++contrast;
        float mean = 0;
        if (contrast < 4) {
            double sum = 0;
            for (index_t i = b.thread(); i < pixels; i += b.threads()) {
                float* const p = image + 3 * i;
                for (int s = 0; s < contrast; ++s) step(f, f.order[s], p);
                sum += static_cast<double>(colour::grey(p));
            }
            mean = static_cast<float>(block_sum(b, sum, b.template shared<double>()) / static_cast<double>(pixels));
        }
        for (index_t i = b.thread(); i < pixels; i += b.threads()) {
            float* const p = image + 3 * i;
            if (contrast < 4) colour::blend(p, f.contrast, mean);
            for (int s = contrast < 4 ? contrast + 1 : 0; s < 4; ++s) step(f, f.order[s], p);
            normalise(p, p);
        }
    }

    CAIRN_HD static void step(const jitter_factors& f, std::int32_t which, float* p) {
        if (!f.active[which]) return;
        if (which == 0) colour::blend(p, f.brightness, 0.0f);
        if (which == 2) colour::blend(p, f.saturation, colour::grey(p));
        if (which == 3) colour::rotate_hue(p, f.turn);
    }
};

}  // namespace grid

/// x (count, size, size, 3) of `sources` (count), in memory of D, launched by queue.launch(grid, body).
template <GridDevice D, class Queue>
void inputs_of_encoded_images(D, Queue&& queue, index_t count, const device_image_transform& recipe,
                              const grid::encoded_image_source* sources, float* x) {
    if (count == 0) return;
    const index_t pixels = recipe.size * recipe.size;
    grid::normalise_rgb normalise{.scale = {}, .shift = {}, .rounded = recipe.rounded};
    for (std::size_t c = 0; c < 3; ++c) {
        normalise.scale[c] = recipe.scale[c];
        normalise.shift[c] = recipe.shift[c];
    }
    flop_counter::count(0, static_cast<double>(count * pixels) * (recipe.jittered ? 60 : 12));
    queue.launch({.blocks = grid::blocks_for<D>(count * pixels, 256), .threads = 256},
                 grid::resample_photographs_kernel{count, recipe.size, !recipe.jittered, normalise, sources, x});
    if (recipe.jittered)
        queue.launch({.blocks = count, .threads = 256, .shared = 256 / warp_threads * index_t{sizeof(double)}},
                     grid::jitter_photographs_kernel{pixels, normalise, sources, x});
}

/// A file that is to be decoded to `pixels`, RGB in memory of the device, rows 3 · width bytes apart.
struct jpeg_job {
    std::span<const std::uint8_t> file;
    std::uint8_t* pixels = nullptr;
    index_t height = 0, width = 0;
    bool refused = false;  // the decoder's answer
};

/// Decodes whole JPEG files on D behind what `queue` holds, to addresses that are multiples of 256; marks those that it
/// refuses. Files stay until what queue then holds is done; it is called again after that.
///   decoder.decode(jobs, queue)
template <class J, class D>
concept JpegDecoder = requires(J& j, std::vector<jpeg_job>& jobs, typename D::copy_stream& queue) {
    j.decode(jobs, queue);
};

/// Room for decoded pixels, and for one block a batch that holds weights, factors, and pixels that the host has
/// decoded: two of these, on the host and on D, grown to the largest seen.
template <GridDevice D, JpegDecoder<D> Jpeg>
class encoded_images_on : public encoded_image_decoder<D> {
public:
    encoded_images_on() = default;
    explicit encoded_images_on(Jpeg jpeg) : jpeg_(std::move(jpeg)) {}

    void begin(std::size_t set, std::vector<encoded_image>& from, index_t count, const device_image_transform& recipe,
               const std::function<void(encoded_image&)>& by_host, typename D::copy_stream& queue, float* x) override {
        index_t room = 0;
        jobs_.clear();
        of_job_.clear();
        places_.assign(static_cast<std::size_t>(count), 0);
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (!from[i].compressed) continue;
            places_[i] = room;
            room += aligned(from[i].height * from[i].width * 3);
        }
        std::uint8_t* const decoded =
            library_aligned(grown<D>(decoded_, room + library_alignment, D::memory(), &queue));
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (!from[i].compressed) continue;
            jobs_.push_back({from[i].bytes, decoded + places_[i], from[i].height, from[i].width});
            of_job_.push_back(i);
        }
        if (!jobs_.empty()) jpeg_.decode(jobs_, queue);
        for (std::size_t j = 0; j < jobs_.size(); ++j)
            if (jobs_[j].refused) {
                encoded_image& p = from[of_job_[j]];
                const index_t height = p.height, width = p.width;
                by_host(p);
                require(p.height == height && p.width == width, "encoded images: image ", p.sample, " is ", p.height,
                        " × ", p.width, " pixels, its header says ", height, " × ", width);
            }
        write(set, from, count, decoded, queue);
        inputs_of_encoded_images(D{}, queue, count, recipe,
                                 reinterpret_cast<const grid::encoded_image_source*>(std::as_const(there_[set]).data()),
                                 x);
    }

private:
    static index_t aligned(index_t bytes) {
        return (bytes + library_alignment - 1) / library_alignment * library_alignment;
    }
    template <class T>
    static index_t bytes_of(const std::vector<T>& v) {
        return aligned(static_cast<index_t>(v.size() * sizeof(T)));
    }

    // Room of at least `bytes`, an eighth more where it grows: files differ. What was launched may use what this memory
    // was before, and what is in the queue may use what is let go.
    template <class Where>
    static std::uint8_t* grown(tensor<std::uint8_t, Where>& t, index_t bytes, memory_pool& pool,
                               typename D::copy_stream* queue) {
        if (t.size() < bytes) {
            if (queue) queue->done().finish();
            t = {};
            t = tensor<std::uint8_t, Where>({bytes + bytes / 8}, memory_category::data, pool);
            if (queue) queue->after(typename D::event());
        }
        return t.data();
    }

    // The block of this batch: sources first.
    void write(std::size_t set, const std::vector<encoded_image>& from, index_t count, const std::uint8_t* decoded,
               typename D::copy_stream& queue) {
        index_t bytes = aligned(count * static_cast<index_t>(sizeof(grid::encoded_image_source)));
        for (std::size_t i = 0; i < places_.size(); ++i) {
            const encoded_image& p = from[i];
            bytes += bytes_of(p.down.first) + bytes_of(p.down.weights) + bytes_of(p.across.first) +
                     bytes_of(p.across.weights) + (p.compressed ? 0 : bytes_of(p.bytes));
        }
        std::uint8_t* const here = grown<cpu>(here_[set], bytes, D::host_memory(), nullptr);
        std::uint8_t* const there = grown<D>(there_[set], bytes, D::memory(), &queue);
        index_t at = aligned(count * static_cast<index_t>(sizeof(grid::encoded_image_source)));
        const auto put = [&]<class T>(const std::vector<T>& v) {
            std::memcpy(here + at, v.data(), v.size() * sizeof(T));
            return reinterpret_cast<const T*>(there + std::exchange(at, at + bytes_of(v)));
        };
        for (std::size_t i = 0; i < places_.size(); ++i) {
            const encoded_image& p = from[i];
            grid::encoded_image_source s{};
            s.pitch = p.width * 3;
            s.taps_down = p.down.taps;
            s.taps_across = p.across.taps;
            s.first_down = put(p.down.first);
            s.down = put(p.down.weights);
            s.first_across = put(p.across.first);
            s.across = put(p.across.weights);
            s.pixels = p.compressed ? decoded + places_[i] : put(p.bytes);
            s.jitter = p.jitter;
            std::memcpy(here + i * sizeof s, &s, sizeof s);
            ++(p.compressed ? this->counts_.on_device : this->counts_.by_host);
        }
        queue.copy(there, here, at);
    }

    Jpeg jpeg_;
    tensor<std::uint8_t, D> decoded_;           // of the batch in the making
    std::array<tensor<std::uint8_t>, 2> here_;  // sources, weights, the host's pixels
    std::array<tensor<std::uint8_t, D>, 2> there_;
    std::vector<jpeg_job> jobs_;
    std::vector<std::size_t> of_job_;
    std::vector<index_t> places_;
};

}  // namespace cairn
