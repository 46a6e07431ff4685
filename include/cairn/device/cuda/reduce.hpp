#pragma once
// Reductions on a grid device, those of device/cpu/reduce.hpp: of whole arrays, of parts of an array, of columns and of
// rows.

#include <cairn/device/cuda/array_sums.hpp>
#include <cairn/device/cuda/column_sums.hpp>
#include <cairn/device/cuda/rows.hpp>
#include <cairn/device/cuda/sums_by_part.hpp>
