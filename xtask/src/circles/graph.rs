//! Strongly connected components.

/// Components of more than one node, each in ascending order, the largest first. `edges` lists the successors of each node.
pub(super) fn circles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search { edges, order: vec![None; edges.len()], low: vec![0; edges.len()], ..Search::default() };
    for node in 0..edges.len() {
        if search.order[node].is_none() {
            search.visit(node);
        }
    }
    let mut found = search.found;
    found.sort_by_key(|circle| (std::cmp::Reverse(circle.len()), circle[0]));
    found
}

/// State of Tarjan's algorithm.
#[derive(Default)]
struct Search<'a> {
    edges: &'a [Vec<usize>],
    order: Vec<Option<usize>>,
    low: Vec<usize>,
    open: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, node: usize) {
        let at = self.next;
        self.order[node] = Some(at);
        self.low[node] = at;
        self.next += 1;
        self.open.push(node);
        let edges = self.edges;
        for &other in &edges[node] {
            match self.order[other] {
                None => {
                    self.visit(other);
                    self.low[node] = self.low[node].min(self.low[other]);
                }
                Some(order) if self.open.contains(&other) => self.low[node] = self.low[node].min(order),
                Some(_) => {}
            }
        }
        if self.low[node] == at {
            let from = self.open.iter().position(|open| *open == node).unwrap_or(0);
            let mut circle = self.open.split_off(from);
            circle.sort_unstable();
            if circle.len() > 1 {
                self.found.push(circle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::circles;

    #[test]
    fn components_are_found_once_and_single_nodes_are_none() {
        let edges = [vec![1], vec![2, 3], vec![0], vec![3, 4], vec![5], vec![4], vec![0]];
        assert_eq!(circles(&edges), [vec![0, 1, 2], vec![4, 5]]);
        assert!(circles(&[vec![0], vec![0, 1]]).is_empty());
    }
}
