// ViennaCL's own kernels through its public interface: vectors, dense and sparse products, reductions, an iterative solver.
// Prints residuals against a host computation, rounded so that they are the same on every run.
#define VIENNACL_WITH_OPENCL
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>
#include <viennacl/compressed_matrix.hpp>
#include <viennacl/linalg/cg.hpp>
#include <viennacl/linalg/inner_prod.hpp>
#include <viennacl/linalg/norm_2.hpp>
#include <viennacl/linalg/prod.hpp>
#include <viennacl/matrix.hpp>
#include <viennacl/vector.hpp>

static int wrong = 0;

static void report(const char *what, double difference, double accepted)
{
    bool ok = difference <= accepted;
    std::printf("%s: %s\n", what, ok ? "ok" : "WRONG");
    wrong += !ok;
}

int main()
{
    const std::size_t n = 1000, side = 48;
    std::vector<double> x(n), y(n), z(n);
    for (std::size_t i = 0; i < n; i++) {
        x[i] = 1.0 + double(i % 17);
        y[i] = 0.5 * double(i % 29) - 3.0;
    }
    viennacl::vector<double> dx(n), dy(n), dz(n);
    viennacl::copy(x, dx);
    viennacl::copy(y, dy);
    dz = 2.5 * dx - 0.5 * dy;
    dz += dx;
    viennacl::copy(dz, z);
    double off = 0, dot = 0;
    for (std::size_t i = 0; i < n; i++) {
        off = std::max(off, std::fabs(z[i] - (3.5 * x[i] - 0.5 * y[i])));
        dot += x[i] * y[i];
    }
    report("vectors", off, 1e-12);
    double device_dot = viennacl::linalg::inner_prod(dx, dy);
    report("inner product", std::fabs(device_dot - dot), 1e-8);

    std::vector<std::vector<double>> a(side, std::vector<double>(side)), b = a, c = a;
    for (std::size_t i = 0; i < side; i++)
        for (std::size_t j = 0; j < side; j++) {
            a[i][j] = double((i * 7 + j) % 11) - 5;
            b[i][j] = double((i + 3 * j) % 13) - 6;
        }
    viennacl::matrix<double> da(side, side), db(side, side), dc(side, side);
    viennacl::copy(a, da);
    viennacl::copy(b, db);
    dc = viennacl::linalg::prod(da, db);
    viennacl::copy(dc, c);
    off = 0;
    for (std::size_t i = 0; i < side; i++)
        for (std::size_t j = 0; j < side; j++) {
            double sum = 0;
            for (std::size_t k = 0; k < side; k++)
                sum += a[i][k] * b[k][j];
            off = std::max(off, std::fabs(sum - c[i][j]));
        }
    report("dense product", off, 1e-9);

    std::vector<std::map<unsigned, double>> laplace(n);
    for (unsigned i = 0; i < n; i++) {
        laplace[i][i] = 2.1;
        if (i > 0)
            laplace[i][i - 1] = -1;
        if (i + 1 < n)
            laplace[i][i + 1] = -1;
    }
    viennacl::compressed_matrix<double> sparse(n, n);
    viennacl::copy(laplace, sparse);
    viennacl::vector<double> solution = viennacl::linalg::solve(sparse, dx, viennacl::linalg::cg_tag(1e-10, 300));
    viennacl::vector<double> residual = viennacl::linalg::prod(sparse, solution);
    residual -= dx;
    report("conjugate gradients", viennacl::linalg::norm_2(residual) / viennacl::linalg::norm_2(dx), 1e-8);
    return wrong;
}
