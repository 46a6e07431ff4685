// Cost of the loader.
//   1. Photographs: decode, random resized crop to S², flip and normalisation by a loader with T workers, against
//      libjpeg-turbo alone: the same bytes, T threads, each image decoded whole to RGB at full size into a buffer that
//      is used again, nothing else done. Runs alternate; the ratio of images/s is given for each pair, by wall time
//      and by processor time (which other programs disturb less).
//   2. MNIST and CIFAR-10 (padded, cropped, flipped): batches/s of small images.
//   3. Bytes a sample that a GPU is sent, as floats and as pixels with a move (data/prefetcher.hpp).
//   loader_bench [--data DIR] [--threads T] [--size S] [--pairs N]

#include <cairn/core/summary.hpp>
#include <cairn/data/cifar.hpp>
#include <cairn/data/image_folder.hpp>
#include <cairn/data/loader.hpp>
#include <cairn/data/mnist.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <ctime>
#include <fstream>

namespace {

using namespace cairn;

struct timing {
    double wall, processor;  // seconds; processor: of all threads
};

template <class F>
timing timed(F&& f) {
    const std::clock_t processor = std::clock();
    const stopwatch watch;
    f();
    return {watch.seconds(), static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC};
}

timing decode_only(const image_collection& images, int threads) {
    return timed([&] {
        std::atomic<cairn::index_t> next{0};
        std::vector<std::thread> team;
        for (int t = 0; t < threads; ++t)
            team.emplace_back([&] {
                image out;
                std::vector<std::uint8_t> buffer;
                for (cairn::index_t i; (i = next++) < images.size();)
                    jpeg_decoder(images.bytes(i, buffer), images.name(i)).decode(out);
            });
        for (std::thread& t : team) t.join();
    });
}

// Labels are sent in both cases.
template <Dataset D>
void print_bytes(const std::string& name, const D& data) {
    const cairn::index_t values = data.sample_shape().size();
    const auto label = static_cast<cairn::index_t>(sizeof(std::int32_t));
    fmt::print("{}: {} bytes a sample to a GPU as floats", name, 4 * values + label);
    if (!pixel_table_of(data).empty())
        fmt::print(", {} as pixels", values + static_cast<cairn::index_t>(sizeof(crop_flip)) + label);
    fmt::print("\n");
}

void photographs(const std::filesystem::path& archive, int threads, cairn::index_t size, int pairs) {
    const auto images = std::make_shared<image_collection>(archive);
    std::vector<cairn::index_t> all(static_cast<std::size_t>(images->size()));
    std::iota(all.begin(), all.end(), cairn::index_t{0});
    const image_folder data(images, all, {.size = size, .resize = size});
    print_bytes(fmt::format("photographs at {}²", size), data);
    print_bytes(fmt::format("photographs at {}², rounded", size),
                image_folder(images, all, {.size = size, .resize = size, .rounded = true}));
    const auto one_epoch = [&] {
        return timed([&] {
            loader l(data, {.batch = std::min<cairn::index_t>(64, images->size()), .workers = threads, .epochs = 1});
            while (l.next()) {}
        });
    };
    const double n = static_cast<double>(images->size());
    fmt::print("{}: {} images, {} thread(s), {} pairs\n", archive.filename().string(), images->size(), threads, pairs);
    std::vector<double> alone, ours, ratio, processor_ratio;
    for (int pair = -1; pair < pairs; ++pair) {
        timing a, b;
        if (pair % 2) {
            a = decode_only(*images, threads);
            b = one_epoch();
        } else {
            b = one_epoch();
            a = decode_only(*images, threads);
        }
        if (pair < 0) continue;  // warms up
        alone.push_back(n / a.wall);
        ours.push_back(n / b.wall);
        ratio.push_back(a.wall / b.wall);
        processor_ratio.push_back(a.processor / b.processor);
        fmt::print(
            "  pair {:2}: libjpeg-turbo alone {:7.0f} images/s, loader at {}² {:7.0f} images/s, ratio {:.3f} "
            "(processor time {:.3f})\n",
            pair + 1, alone.back(), size, ours.back(), ratio.back(), processor_ratio.back());
    }
    fmt::print("  median: alone {:.0f}, loader {:.0f} images/s, ratio {:.3f} (processor time {:.3f}); goal 0.9\n",
               median(alone), median(ours), median(ratio), median(processor_ratio));
}

void small_images(const std::string& name, const memory_images& data, cairn::index_t batch) {
    print_bytes(name, data);
    for (int workers : {0, 1}) {
        std::vector<double> rates, processor_rates;
        loader l(data, {.batch = batch, .workers = workers});
        for (int run = 0; run < 7; ++run) {
            l.reset_stats();
            const timing t = timed([&] {
                while (l.next()) {}
            });
            rates.push_back(static_cast<double>(l.stats().samples) / t.wall);
            processor_rates.push_back(static_cast<double>(l.stats().samples) / t.processor);
        }
        fmt::print("{}: batches of {}, {} worker(s): {:.0f} images/s, {:.0f} per second of processor time\n", name,
                   batch, workers, median(rates), median(processor_rates));
    }
}

}  // namespace

int main(int argc, char** argv) {
    std::filesystem::path data = std::getenv("CAIRN_DATA") ? std::getenv("CAIRN_DATA") : "../shared/data";
    int threads = 2, pairs = 7;
    cairn::index_t size = 224;
    CLI::App app{"What the loader costs"};
    app.add_option("--data", data, "folder with mnist, cifar10 and caltech101-subset, as far as they are there")
        ->capture_default_str();
    app.add_option("--threads", threads, "decoding threads")->check(CLI::Range(1, 1024))->capture_default_str();
    app.add_option("--size", size, "edge of the crop")->check(CLI::Range(8, 4096))->capture_default_str();
    app.add_option("--pairs", pairs, "runs of each")->check(CLI::Range(1, 1000))->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    try {
        cairn::set_threads(threads);
        bool any = false;
        if (const auto archive = data / "caltech101-subset" / "caltech101-25x60.tar";
            std::filesystem::exists(archive)) {
            photographs(archive, threads, size, pairs);
            any = true;
        }
        if (std::filesystem::exists(data / "mnist")) {
            small_images("MNIST", cairn::mnist(data / "mnist", cairn::part::train), 64);
            any = true;
        }
        if (const auto file = data / "cifar10" / "data_batch_1_first4000.bin.gz"; std::filesystem::exists(file)) {
            small_images("CIFAR-10", cairn::memory_images(cairn::read_cifar10({file}), cairn::cifar10_recipe(true)),
                         128);
            any = true;
        }
        cairn::require(any, data.string(), ": holds neither caltech101-subset, nor mnist, nor cifar10; give --data");
    } catch (const cairn::error& e) {
        fmt::print(stderr, "loader_bench: {}\n", e.what());
        return 1;
    }
    return 0;
}
