"""Data that a user brings: arrays, tables, folders of images."""

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy import sparse

from fedcanon import FedcanonError
from fedcanon.data.own import from_arrays, from_images, from_table

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3))
Y = np.arange(40) % 4


def rows(split):
    """Samples in an order of their own, to compare splits that may be shuffled differently."""
    return sorted(zip(map(tuple, split.inputs.tolist()), split.targets.tolist(), strict=True))


# Arrays


@pytest.mark.parametrize(
    "inputs",
    [X, torch.from_numpy(X), X.tolist(), np.asfortranarray(X)[:, ::-1][:, ::-1], pd.DataFrame(X)],
    ids=["numpy", "tensor", "lists", "strided", "frame"],
)
def test_every_kind_of_dense_array_gives_the_same_dataset(inputs):
    data = from_arrays((inputs, Y), (inputs, Y))
    assert data.train.inputs.dtype == torch.float32
    assert data.train.targets.dtype == torch.int64
    assert torch.equal(data.train.inputs, torch.from_numpy(X).float())
    assert data.train.targets.tolist() == data.test.targets.tolist() == Y.tolist()
    assert (data.name, data.classes, data.shape, data.note) == ("arrays", 4, (3,), "")


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
@pytest.mark.parametrize("with_test", [True, False])
def test_sparse_inputs_stay_sparse(kind, with_test):
    matrix = kind(np.where(X > 0, X, 0))
    data = from_arrays((matrix, Y), (matrix, Y) if with_test else None)
    dense = from_arrays((matrix.toarray(), Y), (matrix.toarray(), Y) if with_test else None)
    for one, other in ((data.train, dense.train), (data.test, dense.test)):
        assert isinstance(one.inputs, sparse.csr_array)
        assert one.inputs.dtype == np.float32
        np.testing.assert_array_equal(one.inputs.toarray(), other.inputs.numpy())
        assert torch.equal(one.targets, other.targets)


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [
        (["dog", "cat", "dog", "ant"], [2, 1, 2, 0]),
        (np.array([-1, 1, 1, -1]), [0, 1, 1, 0]),
        (torch.tensor([7.0, 3.0, 7.0, 3.0]), [1, 0, 1, 0]),
        ([("a", 1), ("a", 0), ("a", 1), ("b", 0)], [1, 0, 1, 2]),
        ([True, False, True, False], [1, 0, 1, 0]),
        (["1", 1, "1", 2], [2, 0, 2, 1]),
        ([torch.tensor(5), np.int64(4), 5, 4], [1, 0, 1, 0]),
    ],
)
def test_labels_of_any_kind_are_numbered_in_their_order(labels, numbers):
    data = from_arrays((X[:4], labels), (X[:4], labels))
    assert data.train.targets.tolist() == numbers
    assert data.classes == max(numbers) + 1


def test_held_out_data_are_a_fixed_share_of_each_class():
    data = from_arrays((X, Y))
    assert data.note == "20% of the samples held out for testing"
    assert torch.bincount(data.test.targets).tolist() == [2, 2, 2, 2]
    together = sorted(rows(data.train) + rows(data.test))
    assert together == rows(from_arrays((X, Y), (X, Y)).train)
    again, other = from_arrays((X, Y)), from_arrays((X, Y), seed=1)
    assert torch.equal(data.train.inputs, again.train.inputs)
    assert not torch.equal(data.train.inputs, other.train.inputs)
    assert len(from_arrays((X, Y), holdout=0.5).test) == 20


def test_a_class_with_one_sample_can_be_held_out_or_not():
    data = from_arrays((X, [9, *Y[1:]]))
    assert (data.classes, len(data.train), len(data.test)) == (5, 32, 8)


def test_users_go_with_their_samples():
    users = ["ann", "bob"] * 20
    data = from_arrays((np.column_stack([np.arange(40), X]), Y), users=users)
    for split in (data.train, data.test):
        assert split.users.tolist() == [int(row[0]) % 2 for row in split.inputs]
    assert from_arrays((X, Y), (X, Y), users=users).test.users is None


def test_images_keep_their_shape():
    data = from_arrays((np.zeros((6, 3, 8, 5), dtype=np.uint8), [0, 1] * 3))
    assert data.shape == (3, 8, 5)


def test_the_arrays_of_the_user_are_copied():
    mine = X.astype(np.float32)
    data = from_arrays((mine, Y), (mine, Y))
    mine[:] = 0
    assert data.train.inputs.abs().min() > 0


def spoilt(value):
    inputs = X.copy()
    inputs[3, 1] = value
    return inputs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train": (spoilt(np.nan), Y)}, "training inputs are NaN or infinite in row 3, column 1"),
        ({"train": (X, Y), "test": (spoilt(-np.inf), Y)}, "test inputs .* row 3, column 1"),
        ({"train": (spoilt(1e300), Y)}, "row 3, column 1"),
        ({"train": (sparse.csr_array(spoilt(np.nan)), Y)}, "row 3, column 1"),
        ({"train": (spoilt(np.nan)[:, :, None, None], Y)}, "row 3, column 1, 0, 0"),
        ({"train": (X, Y[:-1])}, "training data have 40 inputs but 39 labels"),
        ({"train": (X, Y), "test": (X, Y[:5])}, "test data have 40 inputs but 5 labels"),
        ({"train": (X, Y), "users": [1, 2]}, "40 inputs but 2 users"),
        ({"train": (X, Y), "test": (X[:, :2], Y)}, r"shape \(3,\) but a test input \(2,\)"),
        ({"train": (X, Y), "test": (X, [17, *Y[1:]])}, "label 17 in the test data is not one of"),
        ({"train": (X, [0.37, *Y[1:]])}, r"label 0\.37 is not a class: .* strings"),
        ({"train": (X, [None, *Y[1:]])}, "label of sample 0 is missing"),
        ({"train": (X, [np.nan, *Y[1:]])}, "label of sample 0 is missing"),
        ({"train": (X, np.eye(4)[Y])}, "label is a list or an array"),
        ({"train": (X, [1] * 40)}, "every training label is 1"),
        ({"train": (X[:0], Y[:0])}, "training data are empty"),
        ({"train": (X[:, 0], Y)}, r"shape \(40,\): give \(samples, features\)"),
        ({"train": (X.astype(str), Y)}, "not numbers .* from_table"),
        ({"train": (X, Y), "holdout": 1.0}, "holdout = 1.0 is not a share"),
        ({"train": (X[:2], [0, 1]), "holdout": 0.9}, "2 samples are too few"),
    ],
)
def test_mistakes_in_arrays(arguments, message):
    with pytest.raises(FedcanonError, match=message):
        from_arrays(**arguments)


# Tables


def people(size=60, seed=0):
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": generator.integers(18, 90, size),
            "income": generator.lognormal(10, 1, size),
            "town": generator.choice(["Aachen", "Bonn", "Köln"], size),
            "member": generator.choice([True, False], size),
            "clinic": generator.choice(["north", "south"], size),
            "outcome": generator.choice(["ill", "well"], size),
        }
    )


@pytest.fixture
def table(tmp_path):
    people().to_csv(tmp_path / "people.csv", index=False)
    people().to_parquet(tmp_path / "people.parquet")
    people().to_csv(tmp_path / "packed.csv.gz", index=False)
    return tmp_path


@pytest.mark.parametrize("file", ["people.parquet", "packed.csv.gz"])
def test_csv_and_parquet_give_the_same_dataset(table, file):
    one = from_table(table / "people.csv", "outcome", client="clinic")
    other = from_table(table / file, "outcome", client="clinic")
    assert (one.name, other.name) == ("people", file.partition(".")[0])
    for a, b in ((one.train, other.train), (one.test, other.test)):
        torch.testing.assert_close(a.inputs, b.inputs)
        assert torch.equal(a.targets, b.targets)
        assert torch.equal(a.users, b.users)


def test_columns_are_encoded_with_training_statistics(table):
    data = from_table(table / "people.parquet", "outcome", client="clinic")
    assert (len(data.train), len(data.test), data.classes, data.shape) == (48, 12, 2, (6,))
    assert data.train.inputs.dtype == torch.float32
    numbers, towns = data.train.inputs[:, :3], data.train.inputs[:, 3:]
    torch.testing.assert_close(numbers.mean(0), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(numbers.std(0, correction=0), torch.ones(3))
    assert numbers.shape != data.test.inputs[:, :3].shape
    assert data.test.inputs[:, 0].mean().abs() > 1e-3
    assert set(towns.flatten().tolist()) == {0.0, 1.0}
    assert torch.equal(towns.sum(1), torch.ones(48))


def test_rows_keep_their_labels_and_clients(table):
    frame = people()
    data = from_table(table / "people.csv", "outcome", client="clinic")
    for town, column in (("Aachen", 3), ("Bonn", 4), ("Köln", 5)):
        for outcome, label in (("ill", 0), ("well", 1)):
            for clinic, user in (("north", 0), ("south", 1)):
                expected = (
                    (frame.town == town) & (frame.outcome == outcome) & (frame.clinic == clinic)
                ).sum()
                found = sum(
                    int(
                        (
                            (split.inputs[:, column] == 1)
                            & (split.targets == label)
                            & (split.users == user)
                        ).sum()
                    )
                    for split in (data.train, data.test)
                )
                assert found == expected


def test_a_test_file_is_encoded_as_the_training_file(table):
    later = people(20, seed=1)
    later.loc[0, "town"] = "Essen"
    later[later.columns[::-1]].to_csv(table / "later.csv", index=False)
    with pytest.warns(UserWarning, match="'town' has 1 of 20 rows .* 'Essen'"):
        data = from_table(table / "people.csv", "outcome", test=table / "later.csv")
    assert (len(data.train), len(data.test), data.note) == (60, 20, "")
    income = people().income
    expected = (later.income - income.mean()) / income.std(ddof=0)
    np.testing.assert_allclose(data.test.inputs[:, 1], expected, rtol=1e-4, atol=1e-5)
    assert data.test.inputs[0, 3:6].tolist() == [0, 0, 0]  # a town unknown in training


def test_a_category_of_test_data_alone_is_told_with_its_rows(tmp_path):
    train = pd.DataFrame({"ward": ["a", "b"] * 10, "age": range(20), "y": [0, 1] * 10})
    test = train.assign(ward=["a", "c", "c", "d"] * 5)
    for name, frame in (("train", train), ("test", test)):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    words = r"'ward' has 15 of 20 rows with a category that the training data do not have, .*'c'"
    with pytest.warns(UserWarning, match=words):
        data = from_table(str(tmp_path / "train.csv"), "y", test=str(tmp_path / "test.csv"))
    assert data.test.inputs[1].tolist()[-2:] == [0, 0]


def test_wide_categories_become_a_sparse_matrix(tmp_path):
    frame = pd.DataFrame({"code": [f"c{i % 50:02}" for i in range(500)], "y": [0, 1] * 250})
    frame.to_csv(tmp_path / "codes.csv", index=False)
    data = from_table(tmp_path / "codes.csv", "y")
    assert isinstance(data.train.inputs, sparse.csr_array)
    assert data.train.inputs.shape == (400, 50)
    np.testing.assert_array_equal(data.train.inputs.sum(1), np.ones(400))


def with_column(**columns):
    return people().assign(**columns)


@pytest.mark.parametrize(
    ("frame", "label", "client", "message"),
    [
        (people(), "outcom", None, "no column 'outcom': use one of age, income"),
        (people(), "outcome", "clinics", "no column 'clinics'"),
        (
            with_column(age=[np.nan, 30.0, np.nan] + [20.0] * 57),
            "outcome",
            None,
            "column 'age' of the training table lacks 2 values, the first in row 0",
        ),
        (
            with_column(outcome=[None] + ["ill"] * 59),
            "outcome",
            None,
            "column 'outcome' .* lacks 1",
        ),
        (with_column(when=pd.Timestamp("2024-01-01")), "outcome", None, "'when' holds neither"),
        (with_column(scans=[[1, 2]] * 60), "outcome", None, "'scans' holds neither"),
        (people()[["outcome", "clinic"]], "outcome", "clinic", "no column besides"),
    ],
)
def test_mistakes_in_tables(tmp_path, frame, label, client, message):
    frame.to_parquet(tmp_path / "table.parquet")
    with pytest.raises(FedcanonError, match=message):
        from_table(tmp_path / "table.parquet", label, client=client)


def test_a_column_of_text_is_not_a_category(tmp_path):
    people(300).assign(name=[f"name {i}" for i in range(300)]).to_csv(tmp_path / "names.csv")
    with pytest.raises(FedcanonError, match=r"'name' has \d+ different values in 240 rows"):
        from_table(tmp_path / "names.csv", "outcome")


def test_test_tables_need_the_same_columns(table):
    people().drop(columns="age").to_csv(table / "short.csv", index=False)
    with pytest.raises(FedcanonError, match="'age' is in only one of"):
        from_table(table / "people.csv", "outcome", test=table / "short.csv")


@pytest.mark.parametrize("file", ["absent.csv", "absent.parquet", "broken.parquet", "empty.csv"])
def test_files_that_cannot_be_read(tmp_path, file):
    if not file.startswith("absent"):
        (tmp_path / file).write_text("")
    with pytest.raises(FedcanonError, match=f"cannot read .*{file}"):
        from_table(tmp_path / file, "y")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FedcanonError, match=r"give a \.csv or \.parquet file"):
        from_table(tmp_path / "table.xlsx", "y")


# Images


def save(path, mode="RGB", size=(6, 4), value=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


@pytest.fixture
def pictures(tmp_path):
    for i in range(10):
        save(tmp_path / "cat" / f"{i}.png", value=(255, 0, i))
        save(tmp_path / "dog" / "more" / f"{i}.png", value=(0, 51, i))
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.txt").write_text("not an image")
    (tmp_path / "cat" / ".DS_Store").write_text("not an image")
    (tmp_path / "README.txt").write_text("beside the classes")
    return tmp_path


def test_class_folders(pictures):
    data = from_images(pictures)
    assert (data.classes, data.shape, len(data.train), len(data.test)) == (2, (3, 4, 6), 16, 4)
    assert data.name == pictures.name
    assert "held out" in data.note
    for split in (data.train, data.test):
        assert split.inputs.dtype == torch.float32
        assert torch.equal(split.inputs[:, 0, 0, 0], (split.targets == 0).float())
        torch.testing.assert_close(split.inputs[:, 1, 3, 5], (split.targets == 1).float() / 5)
    blue = torch.cat([data.train.inputs, data.test.inputs])[:, 2, 0, 0]
    assert sorted((blue * 255).round().int().tolist()) == sorted([*range(10)] * 2)


def test_train_and_test_folders(tmp_path):
    for name in ("a", "b"):
        save(tmp_path / "train" / name / "1.png", "L", value=200)
        save(tmp_path / "test" / name / "1.png", "L", value=100)
        save(tmp_path / "test" / name / "2.png", "L", value=100)
    data = from_images(tmp_path)
    assert (len(data.train), len(data.test), data.shape, data.note) == (2, 4, (1, 4, 6), "")
    assert data.test.targets.tolist() == [0, 0, 1, 1]
    torch.testing.assert_close(data.train.inputs, torch.full((2, 1, 4, 6), 200 / 255))
    torch.testing.assert_close(data.test.inputs, torch.full((4, 1, 4, 6), 100 / 255))


def test_one_coloured_test_image_makes_all_images_coloured(tmp_path):
    save(tmp_path / "train" / "a" / "1.png", "L", value=10)
    save(tmp_path / "train" / "b" / "1.png", "P", value=0)
    save(tmp_path / "test" / "a" / "1.png", "RGBA", value=(1, 2, 3, 255))
    data = from_images(tmp_path)
    assert data.shape == (3, 4, 6)
    assert (data.train.inputs[0] * 255).round().unique().tolist() == [10]
    assert (data.test.inputs[0, :, 0, 0] * 255).round().tolist() == [1, 2, 3]


def test_pixels_are_those_of_the_file(tmp_path):
    pixels = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    save(tmp_path / "train" / "a" / "0.png", size=(7, 5))
    (tmp_path / "train" / "b").mkdir()
    Image.fromarray(pixels).save(tmp_path / "train" / "b" / "0.png")
    save(tmp_path / "test" / "a" / "0.png", size=(7, 5))
    inputs = from_images(tmp_path).train.inputs
    np.testing.assert_array_equal(inputs[1].permute(1, 2, 0) * 255, pixels.astype(np.float32))


def test_the_first_image_of_another_size_is_named(pictures):
    save(pictures / "dog" / "odd.png", size=(8, 4))
    with pytest.raises(FedcanonError, match=r"odd\.png has 8×4 pixels but .* has 6×4: bring all"):
        from_images(pictures)


def test_a_file_that_is_no_image_is_named(pictures):
    (pictures / "cat" / "notes.txt").write_text("miaow")
    with pytest.raises(FedcanonError, match=r"notes\.txt is not an image"):
        from_images(pictures)


@pytest.mark.parametrize("kept", [20, 40, 50])
def test_a_broken_image_is_named(pictures, kept):
    path = pictures / "cat" / "0.png"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(FedcanonError, match=r"0\.png (cannot be read|is not an image)"):
        from_images(pictures)


def test_deep_pixels_are_refused(pictures):
    save(pictures / "cat" / "deep.png", "I;16")
    with pytest.raises(FedcanonError, match=r"deep\.png has more than 8 bits"):
        from_images(pictures)


def test_folders_without_classes(tmp_path):
    with pytest.raises(FedcanonError, match="no images in folders: make a folder for each class"):
        from_images(tmp_path)
    with pytest.raises(FedcanonError, match=r"there is no folder .*absent"):
        from_images(tmp_path / "absent")
