module @jit_convolutions attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x9x8x2xf32>) -> (tensor<2x5xf32> {jax.result_info = "result[0]"}, tensor<2xi32> {jax.result_info = "result[1]"}) {
    %cst = stablehlo.constant dense<"0x5CD0CA3E962012BF9CC32C3F438D1E3FB085B1BF209427BF11B591BFFE8FE5BE072CE0BBA4E260BD487D683EAEB982BD194841BFA65E4CBF2ED79ABEB82D353EDB29D63E29745F3F3226F8BED17E11BF0C0A9EBBE573003F22D3AABEAA389FBFCA8E533FDBD398BDB179893E77D7813D7EAD15BFC072003EA5EF59BE48B09EBDFFE3283F806395BE6CB8433DA737913E971863BF95538ABE2202933F975D12BE8857523D1DA1E13E764513BE8CCF14BF87C9C6BD9CB238BF0505B8BEC647D03C575AC2BB31280A3FD1EA26BF636C9A3E9990E43C1D0C57BE6E4E1DBF2F774F3C77D25F3E01E8093DC98EB2BEC8CE793FB909C1BAC813E33E50FE793F6209963E3808363F78B880BE66A1923F24E07FBF3E73D13E816842BEB1F66F3F7EF85ABFAF28723D3DA94ABC52CB59BEA762683FFF9D4CBFE261D03E9DD84D3E5F7553BF4CFAEEBCAE40C7BB7414B03EBB8B7A3E3C5618BFB4DBA3BE128EF23E0BEE5ABD5F38D9BEEEB684BF056860BE6A8F68BEE333E6BD9A6A52BDBBA402BEAB55A23E6F56433FAA5A0FBF1BC69A3D457EDD3EEE5048BE6B4D8A3E1E87F1BD9089B63DE4B1993E5C4630BEAC4F0B3E0EA7133F"> : tensor<3x3x2x6xf32>
    %cst_0 = stablehlo.constant dense<[[[[-0.873472988, 0.289227545, -0.451599896, 0.0717994571, -0.0730953962, 0.93003267]], [[-0.216014042, 0.0351562053, -0.221813604, -1.1781342, 0.511725485, 0.0865764096]], [[0.417325467, -0.409658134, 0.532461584, 0.521901369, -0.11005839, 0.279361188]]], [[[0.767753899, 0.114674278, 0.627545297, -0.691797435, 0.112977073, 0.109512791]], [[-0.723224521, 0.67474085, 0.570411682, 0.171640709, 0.283471823, -0.334385395]], [[0.522733629, 0.045231197, 0.19000566, 0.0791739672, -0.118487842, 0.608451724]]], [[[-0.51314646, 0.285368621, 0.187920526, -0.0415478423, 0.146418214, 0.0888522341]], [[0.0333921798, -0.0219803751, 0.751273036, 0.372224718, -0.780535101, 0.0539869145]], [[0.430766165, 0.115250051, 0.154898152, -0.367978573, 0.71914351, 0.220280245]]]]> : tensor<3x3x1x6xf32>
    %cst_1 = stablehlo.constant dense<[[-0.219439313, -0.291121066, 0.0115905162, 0.407635838, 0.216057852], [0.626636863, -0.595590711, -0.282662362, -0.390594751, -1.03054452], [0.0570031852, -0.0457009487, -0.0258125663, 0.47649911, -0.384786397], [-0.193464607, -0.4953565, -0.219651029, -0.251414329, 0.41445753], [-0.157495663, 0.106523633, -0.627764523, -0.591071665, -0.0591993555], [0.567121208, 0.575386465, 0.267916977, -1.38131583, 0.813846409]]> : tensor<6x5xf32>
    %0 = stablehlo.convolution(%arg0, %cst) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x9x8x2xf32>, tensor<3x3x2x6xf32>) -> tensor<2x9x8x6xf32>
    %1 = call @relu(%0) : (tensor<2x9x8x6xf32>) -> tensor<2x9x8x6xf32>
    %cst_2 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<f32>
    %3 = "stablehlo.reduce_window"(%1, %2) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<[[0, 0], [1, 1], [0, 1], [0, 0]]> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 3, 3, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %15 = stablehlo.maximum %arg1, %arg2 : tensor<f32>
      stablehlo.return %15 : tensor<f32>
    }) : (tensor<2x9x8x6xf32>, tensor<f32>) -> tensor<2x5x4x6xf32>
    %4 = stablehlo.convolution(%3, %cst_0) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 6 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x5x4x6xf32>, tensor<3x3x1x6xf32>) -> tensor<2x3x2x6xf32>
    %5 = call @silu(%4) : (tensor<2x3x2x6xf32>) -> tensor<2x3x2x6xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<f32>
    %7 = "stablehlo.reduce_window"(%5, %6) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<0> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 1, 1, 1>}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %15 = stablehlo.add %arg1, %arg2 : tensor<f32>
      stablehlo.return %15 : tensor<f32>
    }) : (tensor<2x3x2x6xf32>, tensor<f32>) -> tensor<2x2x1x6xf32>
    %cst_4 = stablehlo.constant dense<4.000000e+00> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2x2x1x6xf32>
    %9 = stablehlo.divide %7, %8 : tensor<2x2x1x6xf32>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %10 = stablehlo.reduce(%9 init: %cst_5) applies stablehlo.add across dimensions = [1, 2] : (tensor<2x2x1x6xf32>, tensor<f32>) -> tensor<2x6xf32>
    %cst_6 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %11 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<2x6xf32>
    %12 = stablehlo.divide %10, %11 : tensor<2x6xf32>
    %13 = stablehlo.dot_general %12, %cst_1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x6xf32>, tensor<6x5xf32>) -> tensor<2x5xf32>
    %14 = call @argmax(%13) : (tensor<2x5xf32>) -> tensor<2xi32>
    return %13, %14 : tensor<2x5xf32>, tensor<2xi32>
  }
  func.func private @relu(%arg0: tensor<2x9x8x6xf32>) -> tensor<2x9x8x6xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x9x8x6xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x9x8x6xf32>
    return %1 : tensor<2x9x8x6xf32>
  }
  func.func private @silu(%arg0: tensor<2x3x2x6xf32>) -> tensor<2x3x2x6xf32> {
    %0 = stablehlo.negate %arg0 : tensor<2x3x2x6xf32>
    %1 = stablehlo.exponential %0 : tensor<2x3x2x6xf32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x3x2x6xf32>
    %3 = stablehlo.add %2, %1 : tensor<2x3x2x6xf32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x3x2x6xf32>
    %5 = stablehlo.divide %4, %3 : tensor<2x3x2x6xf32>
    %6 = stablehlo.multiply %arg0, %5 : tensor<2x3x2x6xf32>
    return %6 : tensor<2x3x2x6xf32>
  }
  func.func private @argmax(%arg0: tensor<2x5xf32>) -> tensor<2xi32> {
    %0 = stablehlo.iota dim = 1 : tensor<2x5xi32>
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:2 = stablehlo.reduce(%arg0 init: %cst), (%0 init: %c) across dimensions = [1] : (tensor<2x5xf32>, tensor<2x5xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
     reducer(%arg1: tensor<f32>, %arg3: tensor<f32>) (%arg2: tensor<i32>, %arg4: tensor<i32>)  {
      %2 = stablehlo.compare GT, %arg1, %arg3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %3 = stablehlo.compare NE, %arg1, %arg1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %4 = stablehlo.or %2, %3 : tensor<i1>
      %5 = stablehlo.compare EQ, %arg1, %arg3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %6 = stablehlo.compare LT, %arg2, %arg4, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %7 = stablehlo.and %5, %6 : tensor<i1>
      %8 = stablehlo.or %4, %7 : tensor<i1>
      %9 = stablehlo.select %4, %arg1, %arg3 : tensor<i1>, tensor<f32>
      %10 = stablehlo.select %8, %arg2, %arg4 : tensor<i1>, tensor<i32>
      stablehlo.return %9, %10 : tensor<f32>, tensor<i32>
    }
    return %1#1 : tensor<2xi32>
  }
}
