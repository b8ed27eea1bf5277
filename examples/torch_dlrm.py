"""A small DLRM in PyTorch over Headrace's features.

pip install headrace[torch]
headrace model submit examples/search_ads.py --table search_log
python examples/torch_dlrm.py --model search_ctr --train-end 2026-03-03T18:00

Trains on the events before --train-end, and prints the AUC of those from then on. With --state FILE the weights and what was trained are saved together: a
training that was killed goes on there, and each event is trained once.
"""

import argparse
import os
from pathlib import Path

import torch

import headrace as hr


class Dlrm(torch.nn.Module):
    """Embeddings of each input, their dot products, and two MLPs (Naumov et al., 2019)."""

    def __init__(self, buckets: dict[str, int], numbers: int, dim: int = 16) -> None:
        super().__init__()
        self.names = list(buckets)
        self.tables = torch.nn.ModuleDict({
            name: torch.nn.EmbeddingBag(rows, dim, mode="mean", include_last_offset=True, sparse=True) for name, rows in buckets.items()
        })  # fmt: skip
        for table in self.tables.values():
            torch.nn.init.normal_(table.weight, std=0.01)
        self.bottom = torch.nn.Sequential(torch.nn.Linear(numbers, 64), torch.nn.ReLU(), torch.nn.Linear(64, dim))
        pairs = len(buckets) * (len(buckets) + 1) // 2
        self.top = torch.nn.Sequential(torch.nn.Linear(dim + pairs, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    def forward(self, batch) -> torch.Tensor:
        """The logits of a batch, [events]."""
        numbers = self.bottom(batch.dense)
        pooled = [self.tables[name](batch.ids[name].values, batch.ids[name].offsets) for name in self.names]
        vectors = torch.stack([numbers, *pooled], dim=1)
        row, column = torch.tril_indices(vectors.shape[1], vectors.shape[1], offset=-1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, row, column]
        return self.top(torch.cat([numbers, products], dim=1)).squeeze(1)


def auc(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of pairs of a positive and a negative event that the scores order; equal scores count half."""
    _, place, count = torch.unique(scores, return_inverse=True, return_counts=True)
    below = torch.cumsum(count, 0) - count
    ranks = (below + (count + 1) / 2)[place].double()  # equal scores share the mean of their ranks
    positive = labels > 0.5
    hits, others = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - hits * (hits + 1) / 2) / (hits * others))


def save(file: Path, parts: dict[str, object]) -> None:
    """Write a checkpoint that is whole or not there."""
    temporary = file.with_suffix(".new")
    torch.save(parts, temporary)
    os.replace(temporary, file)


def main() -> None:
    """Train, and print the AUC of later events."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", default=".headrace")
    parser.add_argument("--model", default="search_ctr")
    parser.add_argument("--train-end", required=True, help="events from this time on are tested")
    parser.add_argument("--batch-rows", type=int, default=1024)
    parser.add_argument("--state", type=Path, help="the weights and what was trained")
    parser.add_argument("--save-every", type=int, default=20, help="steps")
    options = parser.parse_args()

    torch.manual_seed(0)
    common = {"home": options.home, "batch_rows": options.batch_rows, "jagged": False}
    train = hr.torch(options.model, end=options.train_end, shuffle_events=16 * options.batch_rows, **common)
    model = Dlrm(train.buckets, sum(columns.stop - columns.start for columns in train.dense_columns.values()))
    rows = torch.optim.Adagrad(model.tables.parameters(), lr=0.05)
    dense = torch.optim.Adam([*model.bottom.parameters(), *model.top.parameters()], lr=0.003)
    parts = {"model": model, "rows": rows, "dense": dense, "events": train}
    if options.state and options.state.exists():
        for name, saved in torch.load(options.state).items():
            parts[name].load_state_dict(saved)

    trained = 0
    for step, batch in enumerate(train, start=1):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(batch), batch.labels)
        rows.zero_grad()
        dense.zero_grad()
        loss.backward()
        rows.step()
        dense.step()
        trained += batch.rows
        if step % 20 == 0:
            print(f"step {step}: loss {float(loss):.4f}", flush=True)
        if options.state and step % options.save_every == 0:
            save(options.state, {name: part.state_dict() for name, part in parts.items()})
    if options.state:
        save(options.state, {name: part.state_dict() for name, part in parts.items()})

    with torch.no_grad():
        tested = [(model(batch), batch.labels) for batch in hr.torch(options.model, start=options.train_end, **common)]
    scores, labels = (torch.cat(column) for column in zip(*tested, strict=True))
    print(f"{trained:,} events trained, {len(labels):,} tested: AUC {auc(scores, labels):.4f}")


if __name__ == "__main__":
    main()
